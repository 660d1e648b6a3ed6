// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net"

	"k8s.io/klog/v2"
)

// beginStreams serves machines' logs, if that is wanted, until what it returns is called.
func (p *program) beginStreams(ctx context.Context) (end func(), err error) {
	if p.options.NodeStreamAddress == "" || !p.options.ServingCertificates {
		return func() {}, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", p.options.NodeStreamAddress)
	if err != nil {
		return nil, fmt.Errorf("--node-stream-address: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.streams(ctx, listener); err != nil {
			klog.FromContext(ctx).Error(err, "Logs of machines can't be read any more")
		}
	}()
	return func() {
		cancel()
		<-ended
	}, nil
}

// streamServer is how the logs are served.
type streamServer func(ctx context.Context, listener net.Listener) error
