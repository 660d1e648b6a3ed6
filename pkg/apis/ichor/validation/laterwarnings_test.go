// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// The clock stands in the tests of this package: schedules and certificates are judged by it.
func init() {
	now = func() time.Time { return time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC) }
}

// longestWarning is what clients show of a warning without cutting it.
const longestWarning = 120

func TestWarningsOfWhatWillBiteLater(t *testing.T) {
	t.Parallel()
	lasting := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	cluster := func(change func(*ichor.TalosClusterSpec)) []string {
		c := &ichor.TalosCluster{Spec: ichor.TalosClusterSpec{ControlPlane: ichor.ControlPlane{Count: 3}}}
		change(&c.Spec)
		return ClusterWarnings(c)
	}
	backup := func(change func(*ichor.TalosEtcdBackupSpec)) []string {
		b := &ichor.TalosEtcdBackup{Spec: ichor.TalosEtcdBackupSpec{Schedule: "0 */6 * * *", Retention: ichor.BackupRetention{Count: 28}}}
		change(&b.Spec)
		return EtcdBackupWarnings(b)
	}
	operation := func(change func(*ichor.TalosOperationSpec)) []string {
		o := &ichor.TalosOperation{Spec: ichor.TalosOperationSpec{Drain: ichor.Drain{Timeout: lasting(10 * time.Minute)}}}
		change(&o.Spec)
		return OperationWarnings(o)
	}
	credential := func(role ichor.TalosRole, ttl time.Duration) []string {
		return CredentialRequestWarnings(&ichor.TalosCredentialRequest{Spec: ichor.TalosCredentialRequestSpec{Role: role, TTL: lasting(ttl)}})
	}
	installation := func(change func(*ichor.IchorInstallationSpec)) []string {
		i := &ichor.IchorInstallation{}
		change(&i.Spec)
		return InstallationWarnings(i)
	}
	leapDay := "0 0 29 2 *"
	for name, tc := range map[string]struct{ got, want []string }{
		"a cluster as people make them": {cluster(func(s *ichor.TalosClusterSpec) {
			s.Discovery = ichor.Discovery{Subnets: []ichor.DiscoverySubnet{{CIDR: "10.0.0.0/24"}}, Interval: *lasting(5 * time.Minute)}
		}), nil},
		"an even number of control planes": {cluster(func(s *ichor.TalosClusterSpec) { s.ControlPlane.Count = 4 }), []string{
			"spec.controlPlane.count: 4 survives no more failures than 3; use an odd number",
		}},
		"a network too large for the interval": {cluster(func(s *ichor.TalosClusterSpec) {
			s.Discovery = ichor.Discovery{Subnets: []ichor.DiscoverySubnet{{CIDR: "10.0.0.0/16"}}, Interval: *lasting(time.Minute)}
		}), []string{"spec.discovery.interval: 1m0s is less than a scan of 65536 addresses takes (2m11s)"}},
		"a machine that keeps the keys": {MachineWarnings(&ichor.TalosMachine{Spec: ichor.TalosMachineSpec{DeletionPolicy: ichor.DeletionOrphan}}), []string{
			"spec.deletionPolicy: Orphan leaves the machine with the cluster's keys when the object is deleted",
		}},
		"a machine as it is found": {MachineWarnings(&ichor.TalosMachine{Spec: ichor.TalosMachineSpec{DeletionPolicy: ichor.DeletionReset}}), nil},
		"a backup every six hours": {backup(func(*ichor.TalosEtcdBackupSpec) {}), nil},
		"a backup every leap year": {backup(func(s *ichor.TalosEtcdBackupSpec) { s.Schedule = leapDay }), []string{
			"spec.schedule: a backup is taken next on 2028-02-29 only",
		}},
		"one backup": {backup(func(s *ichor.TalosEtcdBackupSpec) { s.Retention.Count = 1 }), []string{
			"spec.retention.count: with 1, what went wrong before the last backup can't be undone",
		}},
		"backups that are gone before the next": {backup(func(s *ichor.TalosEtcdBackupSpec) { s.Retention.MaxAge = lasting(time.Hour) }), []string{
			"spec.retention.maxAge: 1h0m0s is less than the time between backups (6h0m0s): only the last is kept",
		}},
		"no schedule": {backup(func(s *ichor.TalosEtcdBackupSpec) { s.Schedule = "" }), []string{
			"spec.schedule: empty, so no backup is taken until spec.backupRequest asks for one",
		}},
		"suspended": {backup(func(s *ichor.TalosEtcdBackupSpec) { s.Suspend = true }), []string{"spec.suspend: no backup is taken by the schedule"}},
		"one key": {backup(func(s *ichor.TalosEtcdBackupSpec) {
			s.Encryption.Age = &ichor.AgeEncryption{Recipients: []string{"age1"}}
		}), []string{"spec.encryption.age.recipients: 1 key; if it is lost, so are all backups"}},
		"a window on Saturdays": {operation(func(s *ichor.TalosOperationSpec) {
			s.Windows = []ichor.OperationWindow{{Schedule: "0 2 * * 6", Duration: *lasting(4 * time.Hour)}}
		}), nil},
		"a window shorter than a drain": {operation(func(s *ichor.TalosOperationSpec) {
			s.Windows = []ichor.OperationWindow{{Schedule: "0 2 * * 6", Duration: *lasting(5 * time.Minute)}}
		}), []string{"spec.windows[0].duration: 5m0s is less than spec.drain.timeout (10m0s): machines are finished after it ends"}},
		"a window every leap year": {operation(func(s *ichor.TalosOperationSpec) {
			s.Windows = []ichor.OperationWindow{{Schedule: leapDay, Duration: *lasting(4 * time.Hour)}}
		}), []string{"spec.windows[0].schedule: it opens next on 2028-02-29 only"}},
		"an operation that was born suspended": {operation(func(s *ichor.TalosOperationSpec) { s.Suspend = true }), []string{
			"spec.suspend: no machine is begun until it is false",
		}},
		"no evictions": {operation(func(s *ichor.TalosOperationSpec) { s.Drain.DisableEviction = true }), []string{
			"spec.drain.disableEviction: pods are deleted past their PodDisruptionBudgets",
		}},
		"a version for some": {operation(func(s *ichor.TalosOperationSpec) {
			s.TalosUpgrade, s.Machines = &ichor.TalosUpgrade{Version: "v1.14.6"}, &ichor.OperationMachines{}
		}), []string{"spec.talosUpgrade.version: some machines only; the others keep theirs until an operation without machines"}},
		"a reader's certificate for an hour": {credential(ichor.TalosRoleReader, time.Hour), nil},
		"a reader's certificate for a day": {credential(ichor.TalosRoleReader, 24*time.Hour), []string{
			"spec.ttl: the certificate can't be taken back for 24h0m0s; ask for less, and again",
		}},
		"an administrator's certificate": {credential(ichor.TalosRoleAdmin, time.Hour), []string{
			"spec.role: os:admin may read every secret of the machines, and can't be taken back before it ends",
		}},
		"one of everything": {installation(func(s *ichor.IchorInstallationSpec) {
			s.Replicas.APIServer, s.Replicas.Controller = new(int32(1)), new(int32(1))
		}), []string{
			"spec.replicas.apiServer: with 1, Ichor's API is away whenever its node is",
			"spec.replicas.controller: with 1, nothing is done to any machine while its node is away",
		}},
		"an Ingress to nothing": {installation(func(s *ichor.IchorInstallationSpec) {
			s.Replicas.UI, s.UI.Exposure = new(int32(0)), ichor.ExposureIngress
		}), []string{"spec.replicas.ui: with 0 there is no web page, and spec.ui.exposure Ingress leads to nothing"}},
		"a reclaim without regard": {ReclaimWarnings(&ichor.MachineReclaim{Spec: ichor.MachineReclaimSpec{AcceptQuorumLoss: true}}), []string{
			"spec.acceptQuorumLoss: the machine's own cluster may lose its etcd for good",
		}},
		"a control plane's section for workers": {ConfigPatchWarnings(&ichor.TalosConfigPatch{Spec: ichor.TalosConfigPatchSpec{
			Cluster: &ichor.ClusterSection{}, Target: ichor.PatchTarget{Role: ichor.RoleWorker},
		}}), []string{"spec.cluster: most of it is about control planes, and this patch is for workers"}},
		"a certificate that ends next week": {StorageWarnings(&ichor.TalosStorage{Spec: ichor.TalosStorageSpec{CABundle: authority(t, 7*24*time.Hour)}}), []string{
			"spec.caBundle: a certificate in it ends on " + now().Add(7*24*time.Hour).UTC().Format(time.DateOnly),
		}},
		"a certificate that ends in a year": {StorageWarnings(&ichor.TalosStorage{Spec: ichor.TalosStorageSpec{CABundle: authority(t, 365*24*time.Hour)}}), nil},
		"the system's certificates":         {StorageWarnings(&ichor.TalosStorage{}), nil},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for _, warning := range tc.got {
			if len(warning) > longestWarning {
				t.Errorf("%s: %q is %d characters long, at most %d are shown", name, warning, len(warning), longestWarning)
			}
		}
	}
}

// authority is a certificate in PEM that ends after a time.
func authority(t *testing.T, after time.Duration) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now().Add(-time.Hour), NotAfter: now().Add(after)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
