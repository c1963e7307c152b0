#pragma once

// Before any system header that OpenSSL includes, so that `fd_set` has the layout of Swift's Glibc module.
#include <sys/select.h>

#include <dirent.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

// Swift imports no macros with arguments: one function for each.

static inline void reactor_bio_clear_retry(BIO *bio) { BIO_clear_retry_flags(bio); }
static inline void reactor_bio_retry_read(BIO *bio) { BIO_set_retry_read(bio); }

static inline void reactor_tls_set_modes(SSL_CTX *context) {
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
}

static inline int reactor_tls_set_minimum_version(SSL_CTX *context, int version) {
    return (int)SSL_CTX_set_min_proto_version(context, version);
}

static inline int reactor_tls_set_maximum_version(SSL_CTX *context, int version) {
    return (int)SSL_CTX_set_max_proto_version(context, version);
}

/// The new sessions of clients go to the callback alone.
static inline void reactor_tls_keep_sessions(SSL_CTX *context, int (*keep)(SSL *, SSL_SESSION *)) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, keep);
}

static inline void reactor_tls_forbid_sessions(SSL_CTX *context, int is_server) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    if (!is_server) return;
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(context, 0);
}

static inline int reactor_tls_accept_name(SSL *ssl, int *alert, void *argument) {
    (void)ssl, (void)alert, (void)argument;
    return SSL_TLSEXT_ERR_OK;
}

/// Otherwise a server's resumed session has no name.
static inline void reactor_tls_accept_names(SSL_CTX *context) {
    SSL_CTX_set_tlsext_servername_callback(context, reactor_tls_accept_name);
}

static inline int reactor_tls_set_server_name(SSL *ssl, const char *name) {
    return (int)SSL_set_tlsext_host_name(ssl, (char *)name);
}

static inline void reactor_tls_set_context_data(SSL_CTX *context, void *data) { SSL_CTX_set_app_data(context, data); }
static inline void *reactor_tls_context_data(SSL *ssl) { return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)); }
static inline void reactor_tls_set_data(SSL *ssl, void *data) { SSL_set_app_data(ssl, data); }
static inline void *reactor_tls_data(SSL *ssl) { return SSL_get_app_data(ssl); }

/// The connection whose peer's chain is verified.
static inline SSL *reactor_tls_verified(X509_STORE_CTX *verification) {
    return (SSL *)X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx());
}

static inline int reactor_x509_count(const STACK_OF(X509) *chain) { return sk_X509_num(chain); }
static inline X509 *reactor_x509_at(const STACK_OF(X509) *chain, int index) { return sk_X509_value(chain, index); }
static inline STACK_OF(X509) *reactor_x509_make_stack(void) { return sk_X509_new_null(); }

/// Appends a certificate, which the stack owns from now on.
static inline int reactor_x509_push(STACK_OF(X509) *chain, X509 *certificate) {
    return sk_X509_push(chain, certificate);
}

/// Removes the first certificate, which the caller owns from now on.
static inline X509 *reactor_x509_shift(STACK_OF(X509) *chain) { return sk_X509_shift(chain); }
static inline void reactor_x509_free_stack(STACK_OF(X509) *chain) { sk_X509_pop_free(chain, X509_free); }

// glibc declares it for GNU sources only.
char *secure_getenv(const char *name);

/// A variable of the environment; null in a program that runs with other privileges than its user's.
static inline const char *reactor_secure_environment(const char *name) { return secure_getenv(name); }
static inline const char *reactor_entry_name(const struct dirent *entry) { return entry->d_name; }
static inline int reactor_ssl_library(unsigned long error) { return ERR_GET_LIB(error) == ERR_LIB_SSL; }
static inline int reactor_error_reason(unsigned long error) { return ERR_GET_REASON(error); }
static inline int reactor_x509_info_count(const STACK_OF(X509_INFO) *items) { return sk_X509_INFO_num(items); }
static inline void reactor_x509_info_free(STACK_OF(X509_INFO) *items) { sk_X509_INFO_pop_free(items, X509_INFO_free); }

/// Trusts a certificate of a PEM text, or applies a revocation list; the number of certificates that are trusted by that.
/// A server may announce them to its clients as the issuers that it trusts.
static inline int reactor_x509_info_trust(
    const STACK_OF(X509_INFO) *items, int index, SSL_CTX *context, int is_announced
) {
    X509_INFO *item = sk_X509_INFO_value(items, index);
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    if (item->crl && X509_STORE_add_crl(store, item->crl)) X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
    if (!item->x509 || !X509_STORE_add_cert(store, item->x509)) return 0;
    if (is_announced) SSL_CTX_add_client_CA(context, item->x509);
    return 1;
}
