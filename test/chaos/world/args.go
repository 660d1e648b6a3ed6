// SPDX-License-Identifier: Apache-2.0

package world

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"maesh.dev/ichor/artifacts"
)

// Ports of the parts, each on an address of its own in the world's range.
const (
	etcdClientPort = 2379
	etcdPeerPort   = 2380
	kubePort       = 6443
	ichorPort      = 8443
)

// Prefix is where Ichor's objects are in etcd.
const Prefix = "/ichor.maesh.dev"

func at(address netip.Addr, port int) string {
	return netip.AddrPortFrom(address, uint16(port)).String()
}

func urls(addresses ...string) string {
	var out []string
	for _, address := range addresses {
		out = append(out, "https://"+address)
	}
	return strings.Join(out, ",")
}

// etcdArgs are those of a member. Members reach each other through the wires before their peer ports.
func (w *World) etcdArgs(n int) ([]string, error) {
	cert, key, err := w.etcdCA.issue(etcdName(n))
	if err != nil {
		return nil, err
	}
	var cluster []string
	for m := range Members {
		cluster = append(cluster, etcdName(m)+"="+urls(w.Peer[m].Addr()))
	}
	client, peer := at(w.addressOf(n), etcdClientPort), at(w.addressOf(n), etcdPeerPort)
	return []string{
		"hollow-child", "etcd", "--name=" + etcdName(n), "--data-dir=" + filepath.Join(w.dir, etcdName(n)),
		"--listen-client-urls=" + urls(client), "--advertise-client-urls=" + urls(client),
		"--listen-peer-urls=" + urls(peer), "--initial-advertise-peer-urls=" + urls(w.Peer[n].Addr()),
		"--initial-cluster=" + strings.Join(cluster, ","), "--initial-cluster-state=new", "--initial-cluster-token=chaos",
		"--cert-file=" + cert, "--key-file=" + key, "--client-cert-auth=true", "--trusted-ca-file=" + w.etcdCA.file(),
		"--peer-cert-file=" + cert, "--peer-key-file=" + key, "--peer-client-cert-auth=true", "--peer-trusted-ca-file=" + w.etcdCA.file(),
		"--watch-progress-notify-interval=5s", "--feature-gates=InitialCorruptCheck=true",
		// Twice etcd's defaults: the parts share few processors.
		"--heartbeat-interval=200", "--election-timeout=2000", "--log-level=warn",
	}, nil
}

func etcdName(n int) string { return "etcd-" + strconv.Itoa(n+1) }

// kubeArgs are those of the kube-apiserver. Nothing is compacted, so that every revision can be judged afterwards.
func (w *World) kubeArgs() ([]string, error) {
	serving, servingKey, err := w.kubeCA.issue("kube-apiserver")
	if err != nil {
		return nil, err
	}
	proxy, proxyKey, err := w.proxyCA.issue("front-proxy-client")
	if err != nil {
		return nil, err
	}
	account, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key for tokens: %w", err)
	}
	accountKey := filepath.Join(w.dir, "service-account.key")
	if err := writeKey(accountKey, account); err != nil {
		return nil, err
	}
	address := w.addressOf(Members)
	return []string{
		"--bind-address=" + address.String(), "--secure-port=" + strconv.Itoa(kubePort), "--advertise-address=" + address.String(),
		"--tls-cert-file=" + serving, "--tls-private-key-file=" + servingKey, "--client-ca-file=" + w.kubeCA.file(),
		"--etcd-servers=" + urls(addresses(w.KubeEtcd[:])...), "--etcd-cafile=" + w.etcdCA.file(), "--etcd-certfile=" + w.etcdCert, "--etcd-keyfile=" + w.etcdKey,
		"--etcd-compaction-interval=0",
		"--authorization-mode=RBAC", "--anonymous-auth=false", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + accountKey, "--service-account-signing-key-file=" + accountKey,
		"--requestheader-client-ca-file=" + w.proxyCA.file(), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--proxy-client-cert-file=" + proxy, "--proxy-client-key-file=" + proxyKey,
	}, nil
}

// ichorArgs are those of an ichor-apiserver.
func (w *World) ichorArgs(n int) []string {
	kubeconfig := w.kubeconfigOf(n)
	return []string{
		"--bind-address=" + w.addressOf(Members+1+n).String(), "--secure-port=" + strconv.Itoa(ichorPort),
		"--tls-cert-file=" + w.servingCert, "--tls-private-key-file=" + w.servingKey,
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--etcd-servers=" + urls(addresses(w.IchorEtcd[n][:])...), "--etcd-cafile=" + w.etcdCA.file(), "--etcd-certfile=" + w.etcdCert, "--etcd-keyfile=" + w.etcdKey,
		"--etcd-prefix=" + Prefix, "--etcd-compaction-interval=0",
	}
}

// servingName is the subject of the ichor-apiservers' certificate.
const servingName = artifacts.APIServerName + "." + artifacts.Namespace + ".svc"
