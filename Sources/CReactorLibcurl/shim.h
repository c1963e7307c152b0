#pragma once

// Before any system header that libcurl includes, so that `fd_set` has the layout of Swift's Glibc module.
#include <sys/select.h>

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

// Swift cannot call variadic functions: one function for each type of argument. They are safe to call with the handles that
// Swift's own keep alive; libcurl copies strings.
#pragma clang attribute push(__attribute__((swift_attr("@safe"))), apply_to = function)

CURLcode curl_easy_pause(CURL *, int);
CURLMcode curl_multi_socket_action(CURLM *, curl_socket_t, int, int *), curl_multi_remove_handle(CURLM *, CURL *);
#define REACTOR_CURL_SETTER(name, type) \
    static inline CURLcode reactor_curl_set_##name(CURL *easy, CURLoption option, type value) { \
        return curl_easy_setopt(easy, option, value); \
    }
REACTOR_CURL_SETTER(long, long)
REACTOR_CURL_SETTER(offset, curl_off_t)
REACTOR_CURL_SETTER(string, const char *)

static inline CURLcode reactor_curl_get_long(CURL *easy, CURLINFO information, long *value) {
    return curl_easy_getinfo(easy, information, value);
}

static inline CURLcode reactor_curl_get_string(CURL *easy, CURLINFO information, const char **value) {
    return curl_easy_getinfo(easy, information, value);
}

/// Initializes libcurl. If it does TLS with OpenSSL, that keeps its memory at exit(3), when other threads may be using it.
static inline CURLcode reactor_curl_initialize(void) {
    // libcurl depends on it, this module does not: it may have been built with another library.
    int (*initialize)(uint64_t, const void *) = (int (*)(uint64_t, const void *))dlsym(NULL, "OPENSSL_init_crypto");
    if (initialize) initialize(0x80000, NULL); // OPENSSL_INIT_NO_ATEXIT
    return curl_global_init(CURL_GLOBAL_DEFAULT);
}

/// Limits a transfer and its redirects to HTTP and HTTPS.
static inline CURLcode reactor_curl_set_protocols(CURL *easy) {
#if LIBCURL_VERSION_NUM >= 0x075500
    CURLcode code = curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    return code ? code : curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
    CURLcode code = curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    return code ? code
                : curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

/// Limits a transfer's redirects to HTTPS.
static inline CURLcode reactor_curl_forbid_plain_redirects(CURL *easy) {
#if LIBCURL_VERSION_NUM >= 0x075500
    return curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, "https");
#else
    return curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS, (long)CURLPROTO_HTTPS);
#endif
}

/// Detaches the thread that resolves a name if the transfer is removed meanwhile. Before 7.87 libcurl joins it.
static inline void reactor_curl_detach_resolver(CURL *easy) {
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#else
    (void)easy;
#endif
}

/// Sets the number by which callbacks find a transfer.
static inline void reactor_curl_set_number(CURL *easy, uint64_t number) {
    curl_easy_setopt(easy, CURLOPT_PRIVATE, (void *)(uintptr_t)number);
}

static inline uint64_t reactor_curl_get_number(CURL *easy) {
    char *number = NULL;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &number);
    return (uintptr_t)number;
}

static inline CURLMcode reactor_curl_multi_set_long(CURLM *multi, CURLMoption option, long value) {
    return curl_multi_setopt(multi, option, value);
}

/// Takes the next transfer that has ended, and sets its number; false if there is none.
static inline bool reactor_curl_multi_next_ended(CURLM *multi, uint64_t *number, CURLcode *result) {
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(multi, &left))) {
        if (message->msg != CURLMSG_DONE) continue;
        *number = reactor_curl_get_number(message->easy_handle);
        *result = message->data.result;
        return true;
    }
    return false;
}

#pragma clang attribute pop

// Functions with pointers that libcurl keeps.

REACTOR_CURL_SETTER(buffer, char *)
REACTOR_CURL_SETTER(list, struct curl_slist *)

static inline const curl_version_info_data *reactor_curl_version(void) { return curl_version_info(CURLVERSION_NOW); }

/// What libcurl calls for one transfer.
struct reactor_curl_callbacks {
    curl_write_callback header;
    curl_write_callback body;
    curl_read_callback upload;
    curl_seek_callback seek;
    curl_resolver_start_callback resolve;
    curl_opensocket_callback open;
    curl_prereq_callback connected;
};

/// Sets the callbacks of a transfer. `context` must stay valid until the handle is cleaned up.
static inline void reactor_curl_set_callbacks(CURL *easy, void *context, struct reactor_curl_callbacks callbacks) {
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, callbacks.header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, context);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, callbacks.body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, context);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, callbacks.upload);
    curl_easy_setopt(easy, CURLOPT_READDATA, context);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, callbacks.seek);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, context);
    curl_easy_setopt(easy, CURLOPT_RESOLVER_START_FUNCTION, callbacks.resolve);
    curl_easy_setopt(easy, CURLOPT_RESOLVER_START_DATA, context);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, callbacks.open);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, context);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, callbacks.connected);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, context);
}

/// Sets what closes the connections that a transfer makes. `context` must stay valid until the multi handle is cleaned
/// up, because connections outlive their transfers.
static inline void reactor_curl_set_close(CURL *easy, curl_closesocket_callback callback, void *context) {
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, callback);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, context);
}

/// Makes a socket that programs started meanwhile do not inherit.
static inline curl_socket_t reactor_curl_open(const struct curl_sockaddr *address) {
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/// Sets what a multi handle calls. `context` must stay valid until it is cleaned up.
static inline void reactor_curl_multi_set_callbacks(CURLM *multi, curl_socket_callback socket,
                                                    curl_multi_timer_callback timer, void *context) {
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, context);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, context);
}
