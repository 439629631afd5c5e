/* Tells a service manager how far a service is, where one asks for it: systemd's sd_notify, which
 * is a datagram to the socket that the environment names. */
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
