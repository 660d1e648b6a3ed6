// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"

	"maesh.dev/ichor/test/hollow/kubernetes/flags"
)

// cipherSuites are Talos' choice for the API server, which must speak TLS 1.2 to outside clients.
const cipherSuites = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256," +
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384," +
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256," +
	"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"

// apiServerPolicies are Talos' rules for extra arguments of the API server.
var apiServerPolicies = map[string]flags.Policy{
	"enable-admission-plugins": flags.Extend,
	"feature-gates":            flags.Extend,
	"authorization-mode":       flags.Extend,
	"tls-cipher-suites":        flags.Extend,

	"etcd-servers":                     flags.Refuse,
	"client-ca-file":                   flags.Refuse,
	"requestheader-client-ca-file":     flags.Refuse,
	"proxy-client-cert-file":           flags.Refuse,
	"proxy-client-key-file":            flags.Refuse,
	"encryption-provider-config":       flags.Refuse,
	"etcd-cafile":                      flags.Refuse,
	"etcd-certfile":                    flags.Refuse,
	"etcd-keyfile":                     flags.Refuse,
	"kubelet-client-certificate":       flags.Refuse,
	"kubelet-client-key":               flags.Refuse,
	"service-account-key-file":         flags.Refuse,
	"service-account-signing-key-file": flags.Refuse,
	"tls-cert-file":                    flags.Refuse,
	"tls-private-key-file":             flags.Refuse,
	"authorization-config":             flags.Refuse,
}

// APIServer renders the API server's configuration files and command line.
func APIServer(cluster config.ClusterConfig, layout Layout) (Component, error) {
	apiServer := cluster.APIServer()
	component := Component{Name: APIServerName, Image: apiServer.Image(), Env: environment(apiServer.Env())}

	files, contents, err := writeAPIServerFiles(cluster, layout.ConfigDir)
	if err != nil {
		return component, err
	}

	set := apiServerDefaults(cluster, layout, files)

	// Flags of authorization in the extra arguments exclude the configuration file.
	if authorizesByFlags(apiServer.ExtraArgs()) {
		set.Put("authorization-mode", "Node,RBAC")
	} else {
		set.Put("authorization-config", files.authorization)
	}

	if err = set.Merge(apiServer.ExtraArgs(), apiServerPolicies); err != nil {
		return component, fmt.Errorf("flags of %s: %w", component.Name, err)
	}

	set.BindTo(layout.Node.Address)

	if auditLog := set["audit-log-path"]; len(auditLog) > 0 {
		set.Put("audit-log-path", layout.hostPath(auditLog[len(auditLog)-1]))
	}

	component.Args = set.Args()

	return component, component.fingerprint(cluster, layout, contents...)
}

func apiServerDefaults(cluster config.ClusterConfig, layout Layout, files apiServerFiles) flags.Set {
	keys := layout.Files
	endpoint := cluster.Endpoint().String()

	return flags.Of(map[string]string{
		"admission-control-config-file": files.admission,
		"advertise-address":             layout.Node.Address.String(),
		"allow-privileged":              "true",
		"anonymous-auth":                "false",
		"api-audiences":                 endpoint,
		"audit-log-maxage":              "30",
		"audit-log-maxbackup":           "10",
		"audit-log-maxsize":             "100",
		"audit-log-path":                layout.AuditLog,
		"audit-policy-file":             files.audit,
		"bind-address":                  layout.Node.Address.String(),
		"client-ca-file":                keys.CA,
		"enable-admission-plugins":      "NodeRestriction",
		"enable-bootstrap-token-auth":   "true",
		"encryption-provider-config":    files.encryption,
		// The service kubernetes can't point to loopback addresses (validation of Endpoints forbids them).
		"endpoint-reconciler-type":           "none",
		"etcd-cafile":                        keys.EtcdCA,
		"etcd-certfile":                      keys.EtcdCert,
		"etcd-keyfile":                       keys.EtcdKey,
		"etcd-servers":                       "https://" + net.JoinHostPort(layout.Node.Address.String(), "2379"),
		"kubelet-client-certificate":         keys.KubeletCert,
		"kubelet-client-key":                 keys.KubeletKey,
		"kubelet-preferred-address-types":    "InternalIP,ExternalIP,Hostname",
		"profiling":                          "false",
		"proxy-client-cert-file":             keys.FrontProxyCert,
		"proxy-client-key-file":              keys.FrontProxyKey,
		"requestheader-allowed-names":        "front-proxy-client",
		"requestheader-client-ca-file":       keys.AggregatorCA,
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-username-headers":     "X-Remote-User",
		"secure-port":                        strconv.Itoa(cluster.LocalAPIServerPort()),
		"service-account-issuer":             endpoint,
		"service-account-key-file":           keys.ServiceAccountPub,
		"service-account-signing-key-file":   keys.ServiceAccountKey,
		"service-cluster-ip-range":           strings.Join(cluster.Network().ServiceCIDRs(), ","),
		"tls-cert-file":                      keys.ServerCert,
		"tls-cipher-suites":                  cipherSuites,
		"tls-min-version":                    "VersionTLS12",
		"tls-private-key-file":               keys.ServerKey,
	})
}

func authorizesByFlags(extra map[string][]string) bool {
	for name := range extra {
		if name == "authorization-mode" || strings.HasPrefix(name, "authorization-webhook-") {
			return true
		}
	}

	return false
}

// hostPath maps a path below the node's /var to where the hollow node keeps it.
func (l Layout) hostPath(path string) string {
	if below, found := strings.CutPrefix(path, "/var/"); found {
		return filepath.Join(l.VarDir, below)
	}

	return path
}
