// SPDX-License-Identifier: Apache-2.0

package nodestream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// endFor is how long logs that are being read may go on after the end of the program was asked for.
const endFor = 5 * time.Second

// Serve answers until ctx ends. Who may connect is the business of the TLS settings.
func Serve(ctx context.Context, listener net.Listener, settings *tls.Config, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(tls.NewListener(listener, settings)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve machines' logs: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endFor)
	defer cancel()
	if err := server.Shutdown(ending); err != nil {
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve machines' logs: %w", err)
	}
	return nil
}
