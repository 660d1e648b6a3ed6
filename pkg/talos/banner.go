// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// banners are what servers say when they are sent a TLS hello, or before, and who says it.
var banners = []struct{ prefix, words string }{
	{"SSH-", "an SSH server"},
	{"HTTP", "an HTTP server without TLS"},
	{"<", "an HTTP server without TLS"},
	{"RFB ", "a VNC server"},
	{"220", "an SMTP or FTP server"},
	{"+OK", "a POP3 server"},
	{"* OK", "an IMAP server"},
	{"-ERR", "a Redis server"},
	{"AMQP", "an AMQP server"},
	{"@RSY", "an rsync server"},
	{"ERR", "a server that doesn't speak TLS"},
}

// bannerWords says what a server is by the first bytes of its answer to a TLS hello.
func bannerWords(header []byte) string {
	for _, banner := range banners {
		if bytes.HasPrefix(header, []byte(banner.prefix)) {
			return banner.words
		}
	}
	if isSettingsFrame(header) {
		return "an HTTP/2 or gRPC server without TLS"
	}
	return "a server that doesn't speak TLS"
}

// frameHeaderLength is the length of an HTTP/2 frame's header: length (3), type, flags, stream (4). RFC 9113, 4.1.
const frameHeaderLength = 9

// isSettingsFrame tells whether what was read, at least five bytes of it, starts an HTTP/2 server's preface: a SETTINGS
// frame of stream 0 whose length is a multiple of six. RFC 9113, 3.4 and 6.5.
func isSettingsFrame(header []byte) bool {
	const settings, ack, maxLength = 4, 1, 16384
	if len(header) < 5 {
		return false
	}
	length := binary.BigEndian.Uint32(append([]byte{0}, header[:3]...))
	if length > maxLength || length%6 != 0 || header[3] != settings || header[4]&ack != 0 {
		return false
	}
	return len(header) < frameHeaderLength || binary.BigEndian.Uint32(header[5:9])&0x7fffffff == 0
}

// handshakeWords says why a TLS handshake did not come about.
func handshakeWords(err error) string {
	var record tls.RecordHeaderError
	var alert tls.AlertError
	text := err.Error()
	switch {
	case errors.As(err, &record):
		return bannerWords(record.RecordHeader[:])
	case isTimeout(err):
		return "a server that doesn't finish the TLS handshake"
	case strings.Contains(text, "no application protocol"):
		return "TLS without HTTP/2"
	case strings.Contains(text, "protocol version"):
		return "a TLS server without TLS 1.3"
	case errors.As(err, &alert), strings.Contains(text, "remote error: tls:"):
		return "a TLS server that refuses the handshake"
	case isClosed(err):
		return "a server that closes the connection instead of speaking TLS"
	default:
		return "a server whose TLS handshake is faulty"
	}
}

// connectWords says why nothing answered.
func connectWords(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case isTimeout(err):
		return "no answer"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to the address"
	default:
		return "no connection"
	}
}

// wantsCertificate tells that a peer ended the connection because it was shown no client certificate. The alert is no
// *tls.AlertError on this side, so its text has to do (measured).
func wantsCertificate(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "certificate required") || strings.Contains(text, "bad certificate")
}

// isTimeout tells that a deadline passed.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// isClosed tells that the peer ended the connection.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
