// SPDX-License-Identifier: Apache-2.0

package pki

import (
	stdx509 "crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/siderolabs/crypto/x509"
)

// TalosServer issues a serving certificate from the Talos CA, as trustd uses it: 24 h, serverAuth only. names are the
// extra subject alternative names of the machine configuration.
func TalosServer(ca *Pair, node Identity, names []string) (*Pair, error) {
	addresses := []net.IP{node.Address.AsSlice(), net.IPv4(127, 0, 0, 1)}
	dnsNames := []string{node.Hostname}

	for _, name := range names {
		if address, err := netip.ParseAddr(name); err == nil {
			addresses = append(addresses, address.AsSlice())
		} else {
			dnsNames = append(dnsNames, name)
		}
	}

	pair, err := issue(ca,
		x509.CommonName(node.Hostname), x509.DNSNames(dnsNames), x509.IPAddresses(addresses),
		x509.NotAfter(time.Now().Add(x509.DefaultCertificateValidityDuration)),
		usage(stdx509.ExtKeyUsageServerAuth),
	)
	if err != nil {
		return nil, fmt.Errorf("issue serving certificate of %s: %w", node.Hostname, err)
	}

	return pair, nil
}
