#pragma once

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

// mallinfo2(3), adjtimex(2), renameat2(2) and unshare(2), which Swift's Glibc module lacks.
#include <malloc.h>
#include <sys/timex.h>

int unshare(int flags);
#ifndef CLONE_NEWUSER
#define CLONE_NEWUSER 0x10000000
#endif

/// Makes epoll_ctl(2) fail with ENOMEM for the calling thread when it would add a descriptor. Returns 0, or -1 if the
/// kernel does not allow that.
static inline int reactor_test_refuse_epoll_additions(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_ctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 1), // EPOLL_CTL_ADD
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int renameat2(int old_folder, const char *old_path, int new_folder, const char *new_path, unsigned flags);
#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

/// Has the calling thread's timerfd_settime(2) do nothing, and fail with `error`, from now on. Returns 0, or -1 with
/// errno.
static inline int reactor_refuse_timerfd_settime(int error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_timerfd_settime, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
