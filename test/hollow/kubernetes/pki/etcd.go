// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"fmt"
	"net"
	"time"

	"github.com/siderolabs/crypto/x509"
)

// etcdLifetime is how long etcd's certificates live; Talos renews them at every boot only.
const etcdLifetime = 87600 * time.Hour

// EtcdFiles are the paths of what one etcd member needs.
type EtcdFiles struct {
	CA                    string
	ServerCert, ServerKey string
	PeerCert, PeerKey     string
}

// WriteEtcd issues the server and peer certificates of one etcd member.
func WriteEtcd(folder Folder, ca *Pair, node Identity) (EtcdFiles, error) {
	var files EtcdFiles

	peer := []x509.Option{
		x509.CommonName(node.Hostname),
		x509.NotAfter(time.Now().Add(etcdLifetime)),
		usage(stdx509.ExtKeyUsageServerAuth, stdx509.ExtKeyUsageClientAuth),
	}

	peerCert, err := issue(ca, append(peer,
		x509.DNSNames([]string{node.Hostname}),
		x509.IPAddresses([]net.IP{node.Address.AsSlice()}),
	)...)
	if err != nil {
		return files, fmt.Errorf("issue etcd's peer certificate: %w", err)
	}

	serverCert, err := issue(ca, append(peer,
		x509.DNSNames([]string{node.Hostname, "localhost"}),
		x509.IPAddresses([]net.IP{node.Address.AsSlice(), net.IPv4(127, 0, 0, 1), net.IPv6loopback}),
	)...)
	if err != nil {
		return files, fmt.Errorf("issue etcd's server certificate: %w", err)
	}

	if files.CA, err = folder.Write("ca.crt", Bundle(nil, ca)); err != nil {
		return files, err
	}

	if files.PeerCert, files.PeerKey, err = folder.writePair("peer", peerCert); err != nil {
		return files, err
	}

	files.ServerCert, files.ServerKey, err = folder.writePair("server", serverCert)

	return files, err
}

// EtcdClient issues a client certificate for etcd. Authentication in etcd is off, so every client certificate is root.
func EtcdClient(ca *Pair, commonName string) (*Pair, error) {
	pair, err := issue(ca,
		x509.CommonName(commonName),
		x509.NotAfter(time.Now().Add(etcdLifetime)),
		usage(stdx509.ExtKeyUsageClientAuth),
	)
	if err != nil {
		return nil, fmt.Errorf("issue etcd client certificate %s: %w", commonName, err)
	}

	return pair, nil
}

// EtcdClientTLS is the TLS configuration of an administrator's etcd client.
func EtcdClientTLS(ca *Pair) (*tls.Config, error) {
	pair, err := EtcdClient(ca, "talos")
	if err != nil {
		return nil, err
	}

	certificate, err := TLSCertificate(pair)
	if err != nil {
		return nil, err
	}

	pool, err := Pool(Bundle(nil, ca))
	if err != nil {
		return nil, err
	}

	return &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
