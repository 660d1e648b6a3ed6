// SPDX-License-Identifier: Apache-2.0

package people

import (
	"bytes"
	"crypto/tls"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// Good tells whether a person's kubeconfig is there, is for this cluster and stays good for a while.
func Good(path string, cluster Cluster, reserve time.Duration) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil || config.Host != cluster.Server || !bytes.Equal(config.CAData, cluster.CA) {
		return false
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	return err == nil && time.Until(pair.Leaf.NotAfter) > reserve
}
