#include "workloads.h"

struct post {
    struct post *next;
    posted_function function;
    void *context;
};

void posts_prepare(struct posts *posts) {
    pthread_mutex_init(&posts->mutex, NULL);
    posts->first = NULL;
    posts->end = &posts->first;
}

int posts_add(struct posts *posts, posted_function function, void *context) {
    struct post *post = malloc(sizeof *post);
    *post = (struct post){.function = function, .context = context};
    pthread_mutex_lock(&posts->mutex);
    int was_empty = !posts->first;
    *posts->end = post;
    posts->end = &post->next;
    pthread_mutex_unlock(&posts->mutex);
    return was_empty;
}

static struct post *take(struct posts *posts) {
    pthread_mutex_lock(&posts->mutex);
    struct post *first = posts->first;
    posts->first = NULL;
    posts->end = &posts->first;
    pthread_mutex_unlock(&posts->mutex);
    return first;
}

void posts_run(struct posts *posts) {
    struct post *post = take(posts);
    while (post) {
        struct post *next = post->next;
        post->function(post->context);
        free(post);
        post = next;
    }
}
