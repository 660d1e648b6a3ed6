// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"net"
	"net/netip"
	"strconv"

	"maesh.dev/ichor/test/hollow/kubernetes/flags"
	"maesh.dev/ichor/test/hollow/kubernetes/pki"
)

const (
	clientPort = 2379
	peerPort   = 2380
)

// cluster is how a member without data finds the others; the zero value is a member that has data.
type cluster struct {
	// state is etcd's --initial-cluster-state: new or existing.
	state string
	// members is etcd's --initial-cluster.
	members string
}

func url(address netip.Addr, port int) string {
	return "https://" + net.JoinHostPort(address.String(), strconv.Itoa(port))
}

// alone is the initial cluster of a member that has no others.
func (o *Options) alone() string { return o.Name + "=" + url(o.Address, peerPort) }

// args is etcd's command line. What Talos owns can't be overridden by the configuration's extra arguments, except for
// the initial cluster and the advertised URLs.
func (o *Options) args(files pki.EtcdFiles, initial cluster) ([]string, error) {
	owned := flags.Of(map[string]string{
		"name":                           o.Name,
		"auto-tls":                       "false",
		"peer-auto-tls":                  "false",
		"data-dir":                       o.DataDir,
		"listen-peer-urls":               url(o.Address, peerPort),
		"listen-client-urls":             url(o.Address, clientPort),
		"client-cert-auth":               "true",
		"cert-file":                      files.ServerCert,
		"key-file":                       files.ServerKey,
		"trusted-ca-file":                files.CA,
		"peer-client-cert-auth":          "true",
		"peer-cert-file":                 files.PeerCert,
		"peer-key-file":                  files.PeerKey,
		"peer-trusted-ca-file":           files.CA,
		"watch-progress-notify-interval": "5s",
		"feature-gates":                  "InitialCorruptCheck=true,CompactHashCheck=true",
	})

	policies := make(map[string]flags.Policy, len(owned))
	for name := range owned {
		policies[name] = flags.Refuse
	}

	// Nodes on loopback addresses all connect from 127.0.0.1, which no peer certificate names.
	owned.Put("peer-skip-client-san-verification", "true")
	// Slow and shared machines miss etcd's default heartbeat (100 ms) when three members boot at once.
	owned.Put("heartbeat-interval", "500")
	owned.Put("election-timeout", "5000")

	if !o.Fsync {
		owned.Put("unsafe-no-fsync", "true")
	}

	owned.Put("initial-advertise-peer-urls", url(o.Address, peerPort))
	owned.Put("advertise-client-urls", url(o.Address, clientPort))

	if initial.state != "" {
		owned.Put("initial-cluster-state", initial.state)
		owned.Put("initial-cluster", initial.members)
	}

	if err := owned.Merge(o.ExtraArgs, policies); err != nil {
		return nil, err
	}

	owned.BindTo(o.Address)

	return owned.Args(), nil
}
