// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheNodeIsDressed(t *testing.T) {
	t.Parallel()

	taint := func(key, value string) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
	}

	for _, test := range []struct {
		name       string
		labels     map[string]string
		owned      string
		taints     []corev1.Taint
		ownedTaint string
		wanted     Wanted

		wantLabels map[string]string
		wantOwned  string
		wantTaints []corev1.Taint
	}{
		{
			name:       "a wanted label is set and owned",
			wanted:     Wanted{Labels: map[string]string{"rack": "a"}},
			wantLabels: map[string]string{"rack": "a"}, wantOwned: `["rack"]`,
		},
		{
			name:   "a label that somebody else holds is left alone",
			labels: map[string]string{"rack": "theirs"}, wanted: Wanted{Labels: map[string]string{"rack": "a"}},
			wantLabels: map[string]string{"rack": "theirs"},
		},
		{
			name:   "an owned label follows the configuration",
			labels: map[string]string{"rack": "a"}, owned: `["rack"]`, wanted: Wanted{Labels: map[string]string{"rack": "b"}},
			wantLabels: map[string]string{"rack": "b"}, wantOwned: `["rack"]`,
		},
		{
			name:   "an owned label that is no longer wanted goes, others stay",
			labels: map[string]string{"rack": "a", "zone": "1"}, owned: `["rack"]`,
			wantLabels: map[string]string{"zone": "1"},
		},
		{
			name:       "a taint is set and owned",
			wanted:     Wanted{Taints: []corev1.Taint{taint("role", "")}},
			wantLabels: map[string]string{}, wantTaints: []corev1.Taint{taint("role", "")},
		},
		{
			name:   "an owned taint changes its value, one of another stays",
			taints: []corev1.Taint{taint("role", "x"), taint("theirs", "y")}, ownedTaint: `["role"]`,
			wanted:     Wanted{Taints: []corev1.Taint{taint("role", "z"), taint("theirs", "z")}},
			wantLabels: map[string]string{}, wantTaints: []corev1.Taint{taint("role", "z"), taint("theirs", "y")},
		},
		{
			name:   "an owned taint that is no longer wanted goes",
			taints: []corev1.Taint{taint("role", "x"), taint("theirs", "y")}, ownedTaint: `["role"]`,
			wantLabels: map[string]string{}, wantTaints: []corev1.Taint{taint("theirs", "y")},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: test.labels, Annotations: map[string]string{}},
				Spec:       corev1.NodeSpec{Taints: test.taints},
			}
			if test.owned != "" {
				node.Annotations["talos.dev/owned-labels"] = test.owned
			}

			if test.ownedTaint != "" {
				node.Annotations["talos.dev/owned-taints"] = test.ownedTaint
			}

			dressed, err := dress(node, test.wanted)
			if err != nil {
				t.Fatal(err)
			}

			type result struct {
				Labels map[string]string
				Owned  string
				Taints []corev1.Taint
			}

			got := result{dressed.Labels, dressed.Annotations["talos.dev/owned-labels"], dressed.Spec.Taints}
			want := result{test.wantLabels, test.wantOwned, test.wantTaints}

			if len(got.Taints) == 0 {
				got.Taints = nil
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("dressed with %+v (-want +got):\n%s", test.wanted, diff)
			}
		})
	}
}

func TestBrokenOwnershipIsReported(t *testing.T) {
	t.Parallel()

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"talos.dev/owned-labels": "{"}}}
	if _, err := dress(node, Wanted{}); err == nil {
		t.Error("got no error for an annotation that is no list")
	}
}

func TestTheReadyConditionFollowsTheNetworkPlugin(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name   string
		noCNI  bool
		want   corev1.ConditionStatus
		reason string
	}{
		{"with a network plugin the node is ready", false, corev1.ConditionTrue, "KubeletReady"},
		{"without one it is not", true, corev1.ConditionFalse, "KubeletNotReady"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			k := &Kubelet{options: Options{NodeName: "n", NoCNI: test.noCNI, Facts: Facts{CPUs: 1, MemoryBytes: 1 << 30}}}
			node := k.newNode()

			for _, condition := range node.Status.Conditions {
				if condition.Type != corev1.NodeReady {
					continue
				}

				if condition.Status != test.want || condition.Reason != test.reason {
					t.Errorf("got Ready=%s %s, want %s %s", condition.Status, condition.Reason, test.want, test.reason)
				}
			}

			if isReady(node) != !test.noCNI {
				t.Errorf("ready: got %v, want %v", isReady(node), !test.noCNI)
			}

			if got := node.Status.Allocatable.Memory().Value() >> 20; got != 1024-384 {
				t.Errorf("allocatable memory: got %d MiB, want %d", got, 1024-384)
			}
		})
	}
}

func TestAHeartbeatIsNoChangeOfStatus(t *testing.T) {
	t.Parallel()

	k := &Kubelet{options: Options{NodeName: "n"}}

	var before corev1.NodeStatus

	start := time.Unix(1_000, 0)
	k.fill(&before, start)

	after := *before.DeepCopy()
	k.fill(&after, start.Add(time.Minute))

	if !sameStatus(&before, &after) {
		t.Errorf("the same facts a minute later differ:\n%s", cmp.Diff(before, after))
	}

	setCondition(&after, start.Add(time.Hour), corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "node is shutting down")

	if sameStatus(&before, &after) {
		t.Error("another Ready condition is no difference")
	}
}

func TestTheMirrorOfAStaticPodIsTheNodesOwn(t *testing.T) {
	t.Parallel()

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-1", UID: "u-1"}}
	static := StaticPod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "kube-apiserver", Namespace: "kube-system", Annotations: map[string]string{"talos.dev/config-version": "1"},
	}}}

	first, err := mirrorPod(static, node)
	if err != nil {
		t.Fatal(err)
	}

	if first.Name != "kube-apiserver-cp-1" || first.Spec.NodeName != "cp-1" || first.OwnerReferences[0].UID != "u-1" {
		t.Errorf("mirror is %s on %s of %v", first.Name, first.Spec.NodeName, first.OwnerReferences)
	}

	static.Pod.Annotations["talos.dev/config-version"] = "2"

	second, err := mirrorPod(static, node)
	if err != nil {
		t.Fatal(err)
	}

	if first.Annotations[annotationMirror] == second.Annotations[annotationMirror] {
		t.Error("another configuration version has the same hash, so its mirror would not be replaced")
	}
}

// authority signs client certificates for tests.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *stdx509.Certificate
	pem  []byte
}

func newAuthority(t *testing.T) authority {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &stdx509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: stdx509.KeyUsageCertSign,
	}

	der, err := stdx509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	cert, err := stdx509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	return authority{key, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a authority) client(t *testing.T, name string, ends time.Time) []byte {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &stdx509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: ends,
		ExtKeyUsage: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth},
	}

	der, err := stdx509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}

	keyDER, err := stdx509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	return bytes.Join([][]byte{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}, nil)
}

func TestTheStoredCertificateIsUsedOnlyIfItFits(t *testing.T) {
	t.Parallel()

	ca, foreign := newAuthority(t), newAuthority(t)
	later := time.Now().Add(time.Hour)

	for _, test := range []struct {
		name    string
		content []byte
		want    bool
	}{
		{"none is stored", nil, false},
		{"one of this node", ca.client(t, "system:node:n", later), true},
		{"one of another hostname", ca.client(t, "system:node:old", later), false},
		{"one of a CA that is no longer accepted", foreign.client(t, "system:node:n", later), false},
		{"one that expired", ca.client(t, "system:node:n", time.Now().Add(-time.Minute)), false},
		{"half of one", ca.client(t, "system:node:n", later)[:100], false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			k := &Kubelet{options: Options{
				NodeName: "n", Dir: t.TempDir(), CAs: ca.pem, Logger: slog.New(slog.DiscardHandler),
			}}

			if test.content != nil {
				if err := os.MkdirAll(k.pkiDir(), 0o700); err != nil {
					t.Fatal(err)
				}

				if err := os.WriteFile(filepath.Join(k.pkiDir(), certificateFile), test.content, 0o600); err != nil {
					t.Fatal(err)
				}
			}

			got, err := k.loadCertificate()
			if err != nil {
				t.Fatal(err)
			}

			if got != test.want {
				t.Errorf("used: got %v, want %v", got, test.want)
			}

			if _, err = os.Stat(k.pkiDir()); test.content != nil && (err == nil) != test.want {
				t.Errorf("folder of keys is there: got %v, want %v", err == nil, test.want)
			}
		})
	}
}

func TestCertificatesAreRenewedAfterFourFifthsOfTheirLife(t *testing.T) {
	t.Parallel()

	start := time.Unix(0, 0)
	leaf := &stdx509.Certificate{NotBefore: start, NotAfter: start.Add(100 * time.Hour)}

	if got := renewalTime(leaf).Sub(start); got != 80*time.Hour {
		t.Errorf("renewed after %s, want 80h", got)
	}
}
