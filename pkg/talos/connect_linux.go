// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"net/netip"
	"syscall"
)

// askAtOnce asks for a connection before the runtime does, and returns the refusal if it is there already, as it is of
// addresses of this machine and of those without a route. They are most of what a scan looks at, and so need no place in
// the runtime's poller, no timer and no second turn of the goroutine. If the answer isn't there yet the runtime's own
// connect(2), which comes next, meets EALREADY, and waits; if the connection is there already, EISCONN.
func askAtOnce(to netip.AddrPort) func(string, string, syscall.RawConn) error {
	return func(_, _ string, socket syscall.RawConn) error {
		if to.Addr().Zone() != "" {
			return nil // what its index is the runtime finds out
		}
		var refusal error
		err := socket.Control(func(fd uintptr) { refusal = ask(int(fd), to) })
		if err != nil {
			return err
		}
		return refusal
	}
}

func ask(socket int, to netip.AddrPort) error {
	var address syscall.Sockaddr = &syscall.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		address = &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	switch err := syscall.Connect(socket, address); err {
	case nil, syscall.EINTR:
		return nil
	case syscall.EINPROGRESS:
		number, err := syscall.GetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_ERROR)
		if err != nil {
			return err
		}
		if number != 0 {
			return syscall.Errno(number)
		}
		return nil
	default:
		return err
	}
}
