// echo-libuv [PORT]  libuv's TCP handles. Tries each write at once, and stops reading while the rest is queued.

#include "workloads.h"

#include <string.h>
#include <uv.h>

struct connection {
    uv_tcp_t tcp;
    uv_write_t rest;
    char *own; // NULL until a write is first incomplete
};

static char shared[echo_buffer_size];

static void lend(uv_handle_t *handle, size_t size, uv_buf_t *buffer) {
    (void)size;
    char *own = ((struct connection *)handle)->own;
    *buffer = uv_buf_init(own ? own : shared, echo_buffer_size);
}

static void closed(uv_handle_t *handle) {
    free(((struct connection *)handle)->own);
    free(handle);
}

static void came(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer);

static void wrote(uv_write_t *rest, int status) {
    uv_handle_t *handle = (uv_handle_t *)rest->handle;
    if (status == 0) uv_read_start(rest->handle, lend, came);
    else if (!uv_is_closing(handle)) uv_close(handle, closed);
}

static void write_rest(struct connection *connection, char *bytes, size_t begin, size_t end) {
    if (!connection->own) {
        connection->own = malloc(echo_buffer_size);
        memcpy(connection->own + begin, bytes + begin, end - begin);
    }
    uv_buf_t buffer = uv_buf_init(connection->own + begin, (unsigned)(end - begin));
    uv_read_stop((uv_stream_t *)connection);
    uv_write(&connection->rest, (uv_stream_t *)connection, &buffer, 1, wrote);
}

static void came(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    if (count == 0) return;
    if (count < 0) return uv_close((uv_handle_t *)stream, closed);
    uv_buf_t bytes = uv_buf_init(buffer->base, (unsigned)count);
    int written = uv_try_write(stream, &bytes, 1);
    if (written < count)
        write_rest((struct connection *)stream, buffer->base, written < 0 ? 0 : (size_t)written, (size_t)count);
}

static void called(uv_stream_t *listener, int status) {
    if (status < 0) return;
    struct connection *connection = calloc(1, sizeof *connection);
    uv_tcp_init(listener->loop, &connection->tcp);
    if (uv_accept(listener, (uv_stream_t *)connection)) return uv_close((uv_handle_t *)connection, closed);
    uv_tcp_nodelay(&connection->tcp, 1);
    uv_read_start((uv_stream_t *)connection, lend, came);
}

int main(int argc, char **argv) {
    uv_tcp_t listener;
    uv_tcp_init(uv_default_loop(), &listener);
    uv_tcp_open(&listener, echo_listen(argc, argv));
    if (uv_listen((uv_stream_t *)&listener, 1024, called)) return 1;
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
