#pragma once

// A certificate for localhost, which is its own root, for the tools that run programs with TLS.

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/mman.h>

static void add_extension(X509 *certificate, int kind, const char *value) {
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, kind, (char *)value);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
}

static X509 *make_certificate(EVP_PKEY **key) {
    X509 *certificate = X509_new();
    *key = EVP_EC_gen("P-256");
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    X509_set_pubkey(certificate, *key);
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
    add_extension(certificate, NID_subject_alt_name, "DNS:localhost");
    X509_sign(certificate, *key, EVP_sha256());
    return certificate;
}

// Returns a descriptor of the text, which a program that is executed inherits.
static inline int write_certificate(X509 *certificate) {
    int file = memfd_create("certificate", 0);
    BIO *text = BIO_new_fd(file, BIO_NOCLOSE);
    PEM_write_bio_X509(text, certificate);
    BIO_free(text);
    return file;
}

static inline int write_key(EVP_PKEY *key) {
    int file = memfd_create("key", 0);
    BIO *text = BIO_new_fd(file, BIO_NOCLOSE);
    PEM_write_bio_PrivateKey(text, key, NULL, NULL, 0, NULL, NULL);
    BIO_free(text);
    return file;
}
