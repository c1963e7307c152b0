#pragma once

// OpenSSL's digests, which the library's TLS has brought along.
#include <openssl/evp.h>
