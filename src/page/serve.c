/* A small HTTP server: GET and HEAD, a process for each connection, which therefore may take its
 * time.
 */
#include "page/page.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

enum { MAX_CLIENTS = 100, MAX_REQUEST = 8 << 10, REQUEST_S = 10, SILENCE_S = 15 };

struct server {
    char *const *paths;
    size_t n_paths;
    const char *address;
    int socket;
    bool is_loopback, is_full;
};
static bool is_head; /* the request of this process: the answer is without its contents */

/* --- Answers: of a process that ends with its connection --- */

static void say(int client, const char *text, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = send(client, text, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            _exit(0); /* nobody listens any more */
        text += n;
        bytes -= (size_t)n;
    }
}

static void answer(int client, const char *status, const char *type, const char *text, size_t bytes)
{
    char head[512], waste[MAX_REQUEST];
    const int n = snprintf(head, sizeof head,
                           "HTTP/1.1 %s\r\nContent-Type: text/%s; charset=utf-8\r\n"
                           "Content-Length: %zu\r\nCache-Control: no-store\r\n"
                           "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                           status, type, bytes);
    say(client, head, (size_t)n);
    say(client, text, is_head ? 0 : bytes);
    /* Drain the request: closing with unread data sends RST, which can discard the response. */
    shutdown(client, SHUT_WR);
    alarm(REQUEST_S);
    while (recv(client, waste, sizeof waste, 0) > 0)
        ;
}

static void refuse(int client, const char *status, const char *why)
{
    answer(client, status, "plain", why, strlen(why));
}

/* Says "changed" whenever it is true, at first if the page is not that of `state`. Large files, of
 * which a page takes long to make, are looked at less often. */
static void put_events(const struct server *server, int client, const char *path, uint64_t state)
{
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\nretry: 2000\n\n";
    enum { BYTES_PER_S = 16 << 20 };
    uint64_t bytes;
    say(client, head, strlen(head));
    if (is_head)
        return;
    for (unsigned silence = 0;;) {
        const uint64_t now = dt_live_state(server->paths, server->n_paths, path, &bytes);
        if (now != state)
            say(client, "data: changed\n\n", strlen("data: changed\n\n"));
        else if (silence >= SILENCE_S)
            say(client, ":\n\n", strlen(":\n\n")); /* a comment; finds out who is gone */
        const unsigned wait_s = 1 + (unsigned)(bytes / BYTES_PER_S);
        silence = now != state || silence >= SILENCE_S ? 0 : silence + wait_s;
        state = now;
        sleep(wait_s);
    }
}

static void put_page(const struct server *server, int client, const char *path)
{
    static const char mark[] = "data-live=\"";
    char *text = NULL, state[17];
    size_t bytes = 0;
    uint64_t size;
    snprintf(state, sizeof state, "%016" PRIx64,
             dt_live_state(server->paths, server->n_paths, path, &size));
    FILE *out = open_memstream(&text, &bytes);
    if (!out || dt_live_print(out, server->paths, server->n_paths, path) != DT_OK ||
        fclose(out) != 0) {
        refuse(client, "500 Internal Server Error", dt_error_text());
        return;
    }
    memcpy(strstr(text, mark) + strlen(mark), state, strlen(state));
    answer(client, "200 OK", "html", text, bytes);
}

/* --- Requests --- */

/* A page of somewhere else, whose name was made to lead here, cannot read the runs. */
static bool is_host_known(const struct server *server, const char *headers)
{
    const char *const names[] = {"localhost", "127.0.0.1", "[::1]", server->address};
    while (*headers && strncasecmp(headers, "host:", 5) != 0)
        headers += strcspn(headers, "\n") + (strchr(headers, '\n') != NULL);
    headers += *headers ? 5 : 0;
    headers += strspn(headers, " \t");
    size_t n = strcspn(headers, " \t\r\n"), colon = n;
    while (colon > 0 && isdigit((unsigned char)headers[colon - 1]))
        colon--;
    if (colon > 0 && headers[colon - 1] == ':')
        n = colon - 1;
    for (size_t i = 0; i < DT_COUNT(names); i++)
        if (strlen(names[i]) == n && strncasecmp(headers, names[i], n) == 0)
            return true;
    return !server->is_loopback;
}

/* In place; false if it is not a text with %XX for some of its bytes. */
static bool decode(char *path)
{
    char *to = path;
    for (; *path; path++) {
        char digits[3] = "";
        *to = *path;
        if (*path == '%') {
            memcpy(digits, path + 1, strnlen(path + 1, 2));
            if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1]))
                return false;
            *to = (char)strtol(digits, NULL, 16);
            path += 2;
        }
        if (*to++ == '\0')
            return false;
    }
    *to = '\0';
    return true;
}

static void serve(const struct server *server, int client)
{
    char request[MAX_REQUEST + 1] = "";
    size_t n = 0;
    alarm(REQUEST_S);
    while (!strstr(request, "\r\n\r\n") && n < MAX_REQUEST) {
        const ssize_t more = recv(client, request + n, MAX_REQUEST - n, 0);
        if (more <= 0)
            return;
        n += (size_t)more;
    }
    alarm(0);
    if (!strstr(request, "\r\n\r\n")) {
        refuse(client, "431 Request Header Fields Too Large", "the request is too long\n");
        return;
    }
    char *end = strstr(request, "\r\n");
    *end = '\0';
    char *path = strchr(request, ' '), *version = path ? strchr(path + 1, ' ') : NULL;
    if (!version || strncmp(version, " HTTP/1.", 8) != 0) {
        refuse(client, "400 Bad Request", "not a request of HTTP/1.1\n");
        return;
    }
    *path++ = *version = '\0';
    char *query = path + strcspn(path, "?#");
    const bool is_events = strncmp(query, "?events", 7) == 0;
    const uint64_t state = strncmp(query, "?events=", 8) == 0 ? strtoull(query + 8, NULL, 16) : 0;
    *query = '\0';
    is_head = strcmp(request, "HEAD") == 0;
    if (!is_host_known(server, end + 1))
        refuse(client, "403 Forbidden", "the name of this host is 127.0.0.1 or localhost\n");
    else if (strcmp(request, "GET") != 0 && !is_head)
        refuse(client, "405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET and HEAD\n");
    else if (server->is_full)
        refuse(client, "503 Service Unavailable\r\nRetry-After: 10",
               "as many pages as this server can serve are open; close some\n");
    else if (!decode(path) || !dt_live_has(server->paths, server->n_paths, path))
        refuse(client, "404 Not Found", "no such page\n");
    else if (is_events)
        put_events(server, client, path, state);
    else
        put_page(server, client, path);
}

/* --- Sockets --- */

static dt_status open_socket(struct server *server, int port)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *found;
    char service[16];
    const int yes = 1;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(server->address, service, &hints, &found) != 0)
        DT_FAIL(DT_ERR_USAGE, "--address: \"%s\" is not an IP address such as 0.0.0.0",
                server->address);
    server->socket = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = server->socket >= 0;
    ok = ok && setsockopt(server->socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0;
    ok = ok && bind(server->socket, found->ai_addr, found->ai_addrlen) == 0;
    ok = ok && listen(server->socket, MAX_CLIENTS) == 0;
    const int error = errno;
    freeaddrinfo(found);
    if (!ok)
        DT_FAIL(error == EACCES ? DT_ERR_PERMISSION : DT_ERR_IO,
                "cannot listen on %s, port %d: %s; choose another %s", server->address, port,
                strerror(error),
                error == EADDRNOTAVAIL ? "--address, one of this machine"
                                       : "--port, or 0 for one that is free");
    return DT_OK;
}

/* Prints where the pages are. */
static dt_status announce(struct server *server)
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    char host[128], port[16];
    if (getsockname(server->socket, (struct sockaddr *)&own, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&own, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        DT_FAIL(DT_ERR_IO, "cannot find the own address: %s", strerror(errno));
    server->is_loopback = strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
    if (!server->is_loopback)
        dt_log(DT_LOG_WARNING, "anyone who can reach %s, port %s, can read the runs", host, port);
    printf(strchr(host, ':') ? "http://[%s]:%s/\n" : "http://%s:%s/\n", host, port);
    fflush(stdout);
    return DT_OK;
}

static void end(int signal)
{
    (void)signal;
    _exit(0);
}

static void take(const struct server *server, int client, pid_t parent)
{
    const struct timeval max = {.tv_sec = 30}; /* for some bytes of an answer */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    close(server->socket);
    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &max, sizeof max);
    dt_log_init(DT_LOG_ERROR, 0, 1); /* the warnings of a page would come again and again */
    serve(server, client);
    _exit(0);
}

dt_status dt_serve(char *const *paths, size_t n, const char *address, int port)
{
    struct server server = {.paths = paths, .n_paths = n, .address = address, .socket = -1};
    const struct sigaction action = {.sa_handler = end};
    const pid_t parent = getpid();
    dt_status status;
    DT_TRY_OUT(open_socket(&server, port));
    DT_TRY_OUT(announce(&server));
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    for (int n_clients = 0;;) {
        const int client = accept4(server.socket, NULL, NULL, SOCK_CLOEXEC);
        while (n_clients > 0 && waitpid(-1, NULL, WNOHANG) > 0)
            n_clients--;
        if (client < 0)
            continue;
        server.is_full = n_clients >= MAX_CLIENTS; /* as many again are told so */
        const pid_t child = n_clients < 2 * MAX_CLIENTS ? fork() : -1;
        if (child == 0)
            take(&server, client, parent);
        n_clients += child > 0;
        close(client);
    }
out:
    if (server.socket >= 0)
        close(server.socket);
    return status;
}
