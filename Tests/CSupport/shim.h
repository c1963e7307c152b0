#pragma once

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// mallinfo2(3), renameat2(2) and unshare(2), which Swift's Glibc module lacks.
#include <malloc.h>

/// posix_spawn_file_actions_addclosefrom_np(3), whose header would take types from Swift's Glibc module.
int reactor_test_close_from(void *actions, int first) __asm__("posix_spawn_file_actions_addclosefrom_np");
int unshare(int flags);
#ifndef CLONE_NEWUSER
#define CLONE_NEWUSER 0x10000000
#endif

int renameat2(int old_folder, const char *old_path, int new_folder, const char *new_path, unsigned flags);
#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

/// Gives up root, for limits that do not hold for it, and keeps the process's files in /proc readable.
static inline void reactor_test_become_nobody(void) {
    if (getuid() == 0 && setuid(65534) == 0) prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

/// Traces a process, which continues. It cannot be collected by its parent until the calling process has ended.
static inline bool reactor_test_trace(pid_t process) {
    const int seize = 0x4206; // PTRACE_SEIZE
    return syscall(SYS_ptrace, seize, process, 0, 0) == 0;
}

// MARK: Calls that fail (seccomp(2)), on the calling thread and in its children
//
// Each returns false if the kernel does not allow that.

static inline bool reactor_test_set_filter(struct sock_filter *filter, unsigned short count, unsigned flags) {
    struct sock_fprog program = {count, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0;
}

static inline bool reactor_test_filter(struct sock_filter *filter, unsigned short count) {
    return reactor_test_set_filter(filter, count, 0);
}

/// Has the kernel do `action` in the place of `call`.
static inline bool reactor_test_replace(int call, unsigned action) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return reactor_test_filter(filter, sizeof filter / sizeof *filter);
}

static inline bool reactor_test_refuse(int call, int error) {
    return reactor_test_replace(call, SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA));
}

/// Makes connect(2) raise SIGSYS instead.
static inline bool reactor_test_trap_connect(void) { return reactor_test_replace(SYS_connect, SECCOMP_RET_TRAP); }

/// Makes epoll_ctl(2) fail with ENOMEM when it would add a descriptor: for the calling thread, or for all.
static inline bool reactor_test_refuse_epoll_additions(bool of_all_threads) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_ctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 1), // EPOLL_CTL_ADD
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    unsigned flags = of_all_threads ? SECCOMP_FILTER_FLAG_TSYNC : 0;
    return reactor_test_set_filter(filter, sizeof filter / sizeof *filter, flags);
}

/// pipe2(2) with O_DIRECT, which takes each write as a packet.
static inline int reactor_test_packet_pipe(int ends[2]) { return (int)syscall(SYS_pipe2, ends, __O_DIRECT); }

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
/// Makes close_range(2) fail with ENOSYS, as before Linux 5.9.
static inline bool reactor_test_refuse_close_range(void) { return reactor_test_refuse(SYS_close_range, ENOSYS); }

/// Makes timerfd_settime(2) do nothing, and fail with `error`.
static inline bool reactor_test_refuse_timerfd_settime(int error) {
    return reactor_test_refuse(SYS_timerfd_settime, error);
}
