// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"maesh.dev/ichor/pkg/talos"
)

// capture notes when packets arrive, before they are dropped, that ask for a connection to the port of the Talos API, by the kernel's clock.
type capture struct {
	socket int
	ending chan struct{}
	ended  chan error
	sent   []time.Time
}

const (
	etherIPv4      = 0x0800
	soTimestampNS  = 35 // SO_TIMESTAMPNS; asm-generic/socket.h
	packetOutgoing = 4  // PACKET_OUTGOING; linux/if_packet.h. On the loopback link what goes out comes in at once.
	captureBuffer  = 4 << 20
	// captureWait is how long a read waits before it looks whether the capture has ended.
	captureWait = 50 * time.Millisecond
)

func startCapture() (*capture, error) {
	socket, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, int(bigEndian(etherIPv4)))
	if err != nil {
		return nil, fmt.Errorf("capture packets: %w", err)
	}
	wait := syscall.NsecToTimeval(captureWait.Nanoseconds())
	err = errors.Join(
		syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, soTimestampNS, 1),
		syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_RCVBUF, captureBuffer),
		syscall.SetsockoptTimeval(socket, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture packets: %w", err), syscall.Close(socket))
	}
	c := &capture{socket: socket, ending: make(chan struct{}), ended: make(chan error, 1)}
	go func() { c.ended <- errors.Join(c.run(), syscall.Close(socket)) }()
	return c, nil
}

// bigEndian is a number as the kernel wants that of a protocol.
func bigEndian(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// stop ends the capture and returns when packets arrived, in order.
func (c *capture) stop() ([]time.Time, error) {
	close(c.ending)
	err := <-c.ended
	slices.SortFunc(c.sent, time.Time.Compare)
	return c.sent, err
}

func (c *capture) run() error {
	packet, control := make([]byte, 128), make([]byte, 128)
	for {
		n, controlLength, _, from, err := syscall.Recvmsg(c.socket, packet, control, 0)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			select {
			case <-c.ending:
				return nil // everything that was sent has been read
			default:
			}
			continue
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("capture packets: %w", err)
		}
		link, ok := from.(*syscall.SockaddrLinklayer)
		if !ok || link.Pkttype == packetOutgoing || !asksForConnection(packet[:n]) {
			continue
		}
		at, err := timestamp(control[:controlLength])
		if err != nil {
			return err
		}
		c.sent = append(c.sent, at)
	}
}

// asksForConnection tells whether an IPv4 packet is a TCP SYN to the port of the Talos API (RFC 791, 3.1; RFC 9293, 3.1).
func asksForConnection(packet []byte) bool {
	const minHeader, tcp, syn, ack = 20, 6, 0x02, 0x10
	if len(packet) < minHeader || packet[9] != tcp {
		return false
	}
	header := int(packet[0]&0xf) * 4
	if len(packet) < header+minHeader {
		return false
	}
	segment := packet[header:]
	return binary.BigEndian.Uint16(segment[2:]) == talos.Port && segment[13]&(syn|ack) == syn
}

// timestamp reads when the kernel saw a packet: a struct timespec of two 64-bit numbers.
func timestamp(control []byte) (time.Time, error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, fmt.Errorf("capture packets: %w", err)
	}
	for _, m := range messages {
		if m.Header.Level == syscall.SOL_SOCKET && m.Header.Type == soTimestampNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))), nil
		}
	}
	return time.Time{}, errors.New("capture packets: one has no time")
}

// raiseLoopback switches the loopback link of a new namespace on, which is its first (rtnetlink(7)).
func raiseLoopback() error {
	socket, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("switch the loopback link on: %w", err)
	}
	const index, length = 1, syscall.SizeofNlMsghdr + syscall.SizeofIfInfomsg
	order := binary.NativeEndian
	request := order.AppendUint32(nil, length)
	request = order.AppendUint16(request, syscall.RTM_NEWLINK)
	request = order.AppendUint16(request, syscall.NLM_F_REQUEST|syscall.NLM_F_ACK)
	request = append(request, make([]byte, 8)...) // sequence, port
	request = append(request, syscall.AF_UNSPEC, 0, 0, 0)
	request = order.AppendUint32(request, index)
	request = order.AppendUint32(request, syscall.IFF_UP) // flags
	request = order.AppendUint32(request, syscall.IFF_UP) // those of them that change
	err = acknowledged(socket, request)
	if err = errors.Join(err, syscall.Close(socket)); err != nil {
		return fmt.Errorf("switch the loopback link on: %w", err)
	}
	return nil
}

func acknowledged(socket int, request []byte) error {
	if err := syscall.Sendto(socket, request, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(socket, answer, 0)
	if err != nil {
		return err
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil {
		return err
	}
	if len(messages) != 1 || messages[0].Header.Type != syscall.NLMSG_ERROR || len(messages[0].Data) < 4 {
		return errors.New("the kernel doesn't answer as it should")
	}
	if code := int32(binary.NativeEndian.Uint32(messages[0].Data)); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}
