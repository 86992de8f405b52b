/* The network interfaces of this host, from the kernel and not from /sys, which in a container may
 * show those of another network namespace. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "doctor/doctor.h"

/* What ethtool NAME prints; 0 if the driver does not say, or only makes up a number. */
static int ask_speed(int fd, struct ifreq *request)
{
    static const char *const virtual[] = {"veth", "tun", "bridge", "virtio_net", "dummy"};
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    struct ethtool_cmd link = {.cmd = ETHTOOL_GSET};
    request->ifr_data = (void *)&driver;
    if (ioctl(fd, SIOCETHTOOL, request) != 0)
        return 0;
    for (size_t i = 0; i < DT_COUNT(virtual); i++)
        if (strcmp(driver.driver, virtual[i]) == 0)
            return 0;
    request->ifr_data = (void *)&link;
    if (ioctl(fd, SIOCETHTOOL, request) != 0)
        return 0;
    const uint32_t speed = ethtool_cmd_speed(&link);
    return speed < INT32_MAX ? (int)speed : 0;
}

static void describe(struct dt_interface *out, const struct ifaddrs *at, int fd)
{
    const struct sockaddr_in *address = (const void *)at->ifa_addr;
    struct ifreq request = {0};
    *out = (struct dt_interface){0};
    snprintf(out->name, sizeof out->name, "%s", at->ifa_name);
    inet_ntop(AF_INET, &address->sin_addr, out->address, sizeof out->address);
    memcpy(request.ifr_name, out->name, sizeof request.ifr_name);
    if (ioctl(fd, SIOCGIFMTU, &request) == 0)
        out->mtu = request.ifr_mtu;
    out->mbit_per_s = ask_speed(fd, &request);
}

void dt_doctor_interfaces(struct dt_host_info *own)
{
    struct ifaddrs *first;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || getifaddrs(&first) != 0)
        first = NULL;
    for (const struct ifaddrs *at = first; at && own->n_interfaces < DT_INTERFACES;
         at = at->ifa_next)
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET &&
            (at->ifa_flags & (IFF_UP | IFF_RUNNING | IFF_LOOPBACK)) == (IFF_UP | IFF_RUNNING))
            describe(&own->interfaces[own->n_interfaces++], at, fd);
    if (first)
        freeifaddrs(first);
    if (fd >= 0)
        close(fd);
}
