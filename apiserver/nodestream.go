// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/pflag"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/registry/talosmachines"
)

const (
	// defaultNodeStreamURL is the Service in front of ichor-controller.
	defaultNodeStreamURL = "https://ichor-controller." + v1alpha1.SystemNamespace + ".svc:10260"
	// nodeStreamServerName is who has to answer there, whatever its address.
	nodeStreamServerName = "ichor-controller." + v1alpha1.SystemNamespace + ".svc"
	// nodeStreamConnect bounds a connection to it, nodeStreamAnswer how long it may look for the machine.
	nodeStreamConnect = 5 * time.Second
	nodeStreamAnswer  = 45 * time.Second
)

// NodeStreamOptions are where machines' logs are read: ichor-controller has access to machines, this server hasn't.
type NodeStreamOptions struct {
	// URL of ichor-controller's --node-stream-address.
	URL string
	// CAFile holds the authorities that its certificate is verified with; without it no logs are served.
	CAFile string
}

func (o *NodeStreamOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.URL, "node-stream-url", o.URL, "Where ichor-controller serves machines' logs. It is shown this server's own certificate.")
	flags.StringVar(&o.CAFile, "node-stream-ca-file", o.CAFile, "File with the certificate authorities that ichor-controller is verified with: ca.crt of the Secret ichor-apiserver-tls. Read again at each connection. Without it no logs of machines are served.")
}

func (o *NodeStreamOptions) validate() error {
	if o.CAFile == "" {
		return nil
	}
	at, err := url.Parse(o.URL)
	if err != nil || at.Scheme != "https" || at.Host == "" || at.RawQuery != "" || at.User != nil {
		return fmt.Errorf("--node-stream-url: %q is no https URL of a server", o.URL)
	}
	return nil
}

// nodeStreams are the streams of the options; none if no authority is given.
func (o *Options) nodeStreams() (talosmachines.NodeStreams, error) {
	if o.NodeStream.CAFile == "" {
		return talosmachines.NodeStreams{}, nil
	}
	at, err := url.Parse(o.NodeStream.URL)
	if err != nil {
		return talosmachines.NodeStreams{}, fmt.Errorf("--node-stream-url: %w", err)
	}
	own := o.Recommended.SecureServing.ServerCert.CertKey
	return talosmachines.NodeStreams{URL: at, Transport: &http.Transport{
		// Logs are read now and then; certificates and authorities change meanwhile.
		DisableKeepAlives: true, ResponseHeaderTimeout: nodeStreamAnswer,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialNodeStream(ctx, network, address, o.NodeStream.CAFile, own.CertFile, own.KeyFile)
		},
	}}, nil
}

// dialNodeStream connects, with the files as they are now.
func dialNodeStream(ctx context.Context, network, address, authorities, certificate, key string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeStreamConnect)
	defer cancel()
	text, err := os.ReadFile(authorities)
	if err != nil {
		return nil, fmt.Errorf("--node-stream-ca-file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("--node-stream-ca-file: there is no certificate in it")
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("use the serving certificate as a client: %w", err)
	}
	dialer := &tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: nodeStreamServerName, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"},
	}}
	return dialer.DialContext(ctx, network, address)
}
