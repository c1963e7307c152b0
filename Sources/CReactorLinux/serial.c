// The C library's termios has only the standard speeds: this is the kernel's.
#include <asm/termbits.h>
#include <sys/ioctl.h>

#include "CReactorLinux.h"

static tcflag_t data_size(int bits) { return bits == 5 ? CS5 : bits == 6 ? CS6 : bits == 7 ? CS7 : CS8; }

static tcflag_t parity_flags(char parity) { return parity == 'N' ? 0 : parity == 'O' ? PARENB | PARODD : PARENB; }

int reactor_serial_configure(int descriptor, struct reactor_serial settings) {
    struct termios2 port;
    if (ioctl(descriptor, TCGETS2, &port) < 0) return -1;
    port.c_iflag = IGNBRK | (settings.parity == 'N' ? 0 : INPCK) | (settings.has_software_flow_control ? IXON | IXOFF : 0);
    port.c_oflag = 0;
    port.c_lflag = 0;
    // Whether the last close hangs up stays as it is.
    port.c_cflag = (port.c_cflag & HUPCL) | CREAD | CLOCAL | BOTHER | data_size(settings.data_bits) |
        parity_flags(settings.parity) | (settings.stop_bits == 2 ? CSTOPB : 0) |
        (settings.has_hardware_flow_control ? CRTSCTS : 0);
    port.c_ispeed = port.c_ospeed = settings.speed;
    port.c_cc[VMIN] = 1;
    port.c_cc[VTIME] = 0;
    return ioctl(descriptor, TCSETS2, &port);
}
