/* What a service manager, systemd or one like it, and a service have to say to each other. The
 * service tells how far it is, where it is asked to: sd_notify, which is a datagram to the socket
 * that the environment names. The manager may give it a socket that listens already: sd_listen_fds,
 * which is file 3, for the process that the environment names. */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "cli.h"

void cli_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (*path != '/' && *path != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (*path == '@') /* a name that is no file's */
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    (void)sent; /* who does not listen any more need not know */
    close(fd);
}

bool cli_given_socket(cli_socket *out)
{
    enum { FIRST_FD = 3 };
    struct sockaddr_storage own = {0};
    socklen_t n = sizeof own;
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    *out = (cli_socket){0};
    if (!pid || !count || strtol(pid, NULL, 10) != getpid() || !strcmp(count, "0"))
        return true;
    if (strcmp(count, "1") != 0) {
        fprintf(stderr, "dgemma: LISTEN_FDS is %.20s; one socket is listened on\n", count);
        return false;
    }
    if (getsockname(FIRST_FD, (struct sockaddr *)&own, &n) || n > sizeof own ||
        getnameinfo((struct sockaddr *)&own, n, out->host, sizeof out->host, NULL, 0,
                    NI_NUMERICHOST)) {
        fputs("dgemma: file 3, which LISTEN_FDS speaks of, is no socket with an address\n", stderr);
        return false;
    }
    out->fd = FIRST_FD;
    return true;
}
