/* TLS for accepted connections: OpenSSL 3 through libevent's bufferevents. TLS 1.2 at least. */
#include "http/http_priv.h"

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

static enum tri_status tls_fail(struct tri_error *err, const char *what, const char *file)
{
    char text[200] = "";
    ERR_error_string_n(ERR_get_error(), text, sizeof text);
    ERR_clear_error();
    return tri_fail(err, TRI_FORMAT, "%s %s: %s", what, file, text);
}

enum tri_status tri__http_tls_open(SSL_CTX **out, const char *cert, const char *key,
                                   struct tri_error *err)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    enum tri_status st = TRI_OK;
    if (!tls)
        return tri_fail(err, TRI_NOMEM, "no memory for TLS");
    if (SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) != 1)
        st = tls_fail(err, "TLS 1.2", "cannot be required");
    else if (SSL_CTX_use_certificate_chain_file(tls, cert) != 1)
        st = tls_fail(err, "certificate", cert);
    else if (SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1)
        st = tls_fail(err, "private key", key);
    else if (SSL_CTX_check_private_key(tls) != 1)
        st = tls_fail(err, "the certificate does not belong to the private key", key);
    if (st != TRI_OK)
        SSL_CTX_free(tls);
    else
        *out = tls;
    return st;
}

void tri__http_tls_close(SSL_CTX *tls)
{
    SSL_CTX_free(tls);
}

struct bufferevent *tri__http_tls_bufferevent(struct tri_http *http, evutil_socket_t fd)
{
    SSL *ssl = SSL_new(http->tls);
    if (!ssl)
        return NULL;
    struct bufferevent *bev = bufferevent_openssl_socket_new(
        http->base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (!bev) {
        SSL_free(ssl);
        return NULL;
    }
    bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    return bev;
}
