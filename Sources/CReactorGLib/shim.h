#pragma once

// Before any system header that GLib includes, so that `fd_set` has the layout of Swift's Glibc module.
#include <sys/select.h>

#include <glib.h>
#include <glib-unix.h>
#include <stdbool.h>

/// What a GSource calls for the loop that it runs, with `hosting`.
struct reactor_glib_functions {
    bool (*needs_dispatch)(void *hosting);
    /// Returns whether the source remains.
    bool (*dispatch)(void *hosting);
    /// Called once, with `owner`, on any thread, when the source has been destroyed.
    void (*destroyed)(void *owner);
};

struct reactor_glib_source {
    GSource base;
    gpointer tag;
    void *hosting;
    struct reactor_glib_functions functions;
};

static inline gboolean reactor_glib_needs_dispatch(GSource *base) {
    struct reactor_glib_source *source = (struct reactor_glib_source *)base;
    return source->functions.needs_dispatch(source->hosting);
}

static inline gboolean reactor_glib_prepare(GSource *base, gint *timeout) {
    *timeout = -1;
    return reactor_glib_needs_dispatch(base);
}

static inline gboolean reactor_glib_check(GSource *base) {
    struct reactor_glib_source *source = (struct reactor_glib_source *)base;
    return g_source_query_unix_fd(base, source->tag) != 0 || reactor_glib_needs_dispatch(base);
}

static inline gboolean reactor_glib_dispatch(GSource *base, GSourceFunc function, gpointer data) {
    (void)function, (void)data;
    struct reactor_glib_source *source = (struct reactor_glib_source *)base;
    return source->functions.dispatch(source->hosting) ? G_SOURCE_CONTINUE : G_SOURCE_REMOVE;
}

/// Attaches to `context` a source that watches `descriptor`, the loop's. The caller owns a reference to it.
static inline GSource *reactor_glib_attach(GMainContext *context, int descriptor, int priority, void *hosting, void *owner,
                                           struct reactor_glib_functions functions) {
    static GSourceFuncs glib_functions = {
        reactor_glib_prepare, reactor_glib_check, reactor_glib_dispatch, NULL, NULL, NULL,
    };
    GSource *base = g_source_new(&glib_functions, sizeof(struct reactor_glib_source));
    struct reactor_glib_source *source = (struct reactor_glib_source *)base;
    source->hosting = hosting;
    source->functions = functions;
    source->tag = g_source_add_unix_fd(base, descriptor, G_IO_IN);
    // There is no callback: its data's destructor is what is called when the source is destroyed.
    g_source_set_callback(base, NULL, owner, functions.destroyed);
    g_source_set_name(base, "RunLoop");
    g_source_set_priority(base, priority);
    g_source_set_can_recurse(base, TRUE);
    g_source_attach(base, context);
    return base;
}
