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
#include <stdbool.h>

// glibc declares it for GNU sources only.
char *secure_getenv(const char *name);

// Swift imports no macros with arguments: one function for each. They are safe to call with the objects of Swift's handles,
// which are neither null nor freed, and keep none of the other pointers.
#pragma clang attribute push(__attribute__((swift_attr("@safe"))), apply_to = function)

// OpenSSL's own functions of such objects, values and strings, which they copy.
void SSL_set_connect_state(SSL *), SSL_set_accept_state(SSL *), SSL_set_hostflags(SSL *, unsigned), SSL_certs_clear(SSL *);
void SSL_set_shutdown(SSL *, int);
int SSL_set_session(SSL *, SSL_SESSION *), SSL_session_reused(const SSL *), SSL_do_handshake(SSL *), SSL_in_init(const SSL *);
int SSL_shutdown(SSL *), SSL_get_shutdown(const SSL *), SSL_pending(const SSL *), SSL_get_error(const SSL *, int);
int SSL_version(const SSL *), SSL_set1_host(SSL *, const char *), SSL_SESSION_get_protocol_version(const SSL_SESSION *);
long SSL_get_verify_result(const SSL *);
int SSL_CTX_load_verify_file(SSL_CTX *, const char *), SSL_CTX_load_verify_dir(SSL_CTX *, const char *);
int SSL_CTX_set_default_verify_paths(SSL_CTX *), X509_check_private_key(const X509 *, const EVP_PKEY *);
int SSL_CTX_use_cert_and_key(SSL_CTX *, X509 *, EVP_PKEY *, STACK_OF(X509) *, int);
int SSL_use_cert_and_key(SSL *, X509 *, EVP_PKEY *, STACK_OF(X509) *, int);
int X509_verify_cert(X509_STORE_CTX *), X509_STORE_CTX_get_error(const X509_STORE_CTX *);
void X509_STORE_CTX_set_error(X509_STORE_CTX *, int);
STACK_OF(X509) *X509_STORE_CTX_get0_untrusted(const X509_STORE_CTX *);

static inline void reactor_bio_clear_retry(BIO *bio) { BIO_clear_retry_flags(bio); }
static inline void reactor_bio_retry_read(BIO *bio) { BIO_set_retry_read(bio); }

static inline int reactor_tls_accept_name(SSL *ssl, int *alert, void *argument) {
    (void)ssl, (void)alert, (void)argument;
    return SSL_TLSEXT_ERR_OK;
}

/// Sets what all settings have in common, and the versions; false if there is none between them.
static inline bool reactor_tls_configure(SSL_CTX *context, bool is_server, int oldest, int newest) {
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    // Otherwise a server's resumed session has no name.
    if (is_server) SSL_CTX_set_tlsext_servername_callback(context, reactor_tls_accept_name);
    return SSL_CTX_set_min_proto_version(context, oldest) && SSL_CTX_set_max_proto_version(context, newest);
}

/// The new sessions of clients go to the callback alone. A session of one server's context is resumed in no other: the settings
/// may have been different.
static inline void reactor_tls_keep_sessions(SSL_CTX *context, bool is_server, int (*keep)(SSL *, SSL_SESSION *)) {
    if (is_server) {
        SSL_CTX_set_session_id_context(context, (const unsigned char *)"reactor", 7);
    } else {
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(context, keep);
    }
}

static inline void reactor_tls_forbid_sessions(SSL_CTX *context, bool is_server) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    if (!is_server) return;
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(context, 0);
}

/// Checks the peer's chain, of so many certificates at most, by the callback.
static inline void reactor_tls_set_verification(SSL_CTX *context, int mode, int longest_chain,
                                                int (*verify)(X509_STORE_CTX *, void *)) {
    SSL_CTX_set_verify(context, mode, NULL);
    SSL_CTX_set_verify_depth(context, longest_chain);
    SSL_CTX_set_cert_verify_callback(context, verify, NULL);
}

static inline bool reactor_tls_set_server_name(SSL *ssl, const char *name) {
    return SSL_set_tlsext_host_name(ssl, (char *)name);
}

static inline void *reactor_tls_context_data(SSL *ssl) { return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)); }
static inline void *reactor_tls_data(SSL *ssl) { return SSL_get_app_data(ssl); }

/// The connection whose peer's chain is verified.
static inline SSL *reactor_tls_verified(X509_STORE_CTX *verification) {
    return (SSL *)X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx());
}

static inline int reactor_x509_count(const STACK_OF(X509) *chain) { return chain ? sk_X509_num(chain) : 0; }
static inline X509 *reactor_x509_at(const STACK_OF(X509) *chain, int index) { return sk_X509_value(chain, index); }
static inline STACK_OF(X509) *reactor_x509_make_stack(void) { return sk_X509_new_null(); }
/// Removes the first certificate, which the caller owns from now on.
static inline X509 *reactor_x509_shift(STACK_OF(X509) *chain) { return sk_X509_shift(chain); }
static inline void reactor_x509_free_stack(STACK_OF(X509) *chain) { sk_X509_pop_free(chain, X509_free); }

/// Appends the certificates of a PEM text; false if one cannot be read.
static inline bool reactor_x509_read(STACK_OF(X509) *chain, BIO *text) {
    X509 *certificate;
    while ((certificate = PEM_read_bio_X509(text, NULL, NULL, NULL))) sk_X509_push(chain, certificate);
    // The end of the text counts as an error, too.
    return ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
}

/// Trusts the certificates of a PEM text, and applies its revocation lists; the number of certificates that are trusted by
/// that. A server may announce some to its clients as the issuers that it trusts.
static inline int reactor_x509_trust(SSL_CTX *context, BIO *text, int announced_limit) {
    STACK_OF(X509_INFO) *items = PEM_X509_INFO_read_bio(text, NULL, NULL, NULL);
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    int count = 0;
    for (int index = 0; items && index < sk_X509_INFO_num(items); index++) {
        X509_INFO *item = sk_X509_INFO_value(items, index);
        if (item->crl && X509_STORE_add_crl(store, item->crl)) X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
        if (!item->x509 || !X509_STORE_add_cert(store, item->x509)) continue;
        if (count++ < announced_limit) SSL_CTX_add_client_CA(context, item->x509);
    }
    sk_X509_INFO_pop_free(items, X509_INFO_free);
    return count;
}

// Where the system's certificates are. The user who runs a program of another's privileges does not choose it.
static inline const char *reactor_tls_trust_file(void) { return secure_getenv(X509_get_default_cert_file_env()); }
static inline const char *reactor_tls_trust_folder(void) {
    const char *folder = secure_getenv(X509_get_default_cert_dir_env());
    return folder ? folder : X509_get_default_cert_dir();
}

static inline const char *reactor_entry_name(const struct dirent *entry) { return entry->d_name; }
static inline bool reactor_ssl_library(unsigned long error) { return ERR_GET_LIB(error) == ERR_LIB_SSL; }
static inline int reactor_error_reason(unsigned long error) { return ERR_GET_REASON(error); }

#pragma clang attribute pop

/// Makes a connection that reads and writes by `method`. NULL without memory.
static inline SSL *reactor_tls_make(SSL_CTX *context, const BIO_METHOD *method) {
    SSL *ssl = SSL_new(context);
    BIO *bio = ssl ? BIO_new(method) : NULL;
    if (!bio) return SSL_free(ssl), NULL;
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    return ssl;
}

// Data for the callbacks, which outlives the object.
static inline void reactor_tls_set_context_data(SSL_CTX *context, void *data) { SSL_CTX_set_app_data(context, data); }
static inline void reactor_tls_set_data(SSL *ssl, void *data) {
    SSL_set_app_data(ssl, data);
    BIO_set_data(SSL_get_rbio(ssl), data);
}
