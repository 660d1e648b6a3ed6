// SPDX-License-Identifier: Apache-2.0

package direct_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"maesh.dev/ichor/cmd/ichor/app"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1")) // started when klog is imported
}

// now is when the commands run.
var now = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

// bundle is the cluster's; its keys of Talos 1.6 are quickly made.
var bundle = sync.OnceValues(func() (*secretsbundle.Bundle, error) { return secretsbundle.Generate(config.TalosVersion1_6, now) })

// site is a cluster of three control planes, and the person at the terminal who has its bundle in a file.
type site struct {
	t      *testing.T
	world  *talostest.World
	planes []*talostest.Machine
	dir    string
	file   string
	typed  string
	person bool
}

func address(number int) string { return fmt.Sprintf("127.0.0.%d", number) } // nothing but loopback is dialled by a test

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, world: talostest.NewWorld(), dir: t.TempDir()}
	secrets, err := bundle()
	if err != nil {
		t.Fatal(err)
	}
	text, err := secrets.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	s.file = s.write("bundle.yaml", text, 0o600)
	var peers []talos.Peer
	var members []talos.EtcdMember
	for i := 1; i <= 3; i++ {
		peers = append(peers, talos.Peer{NodeID: fmt.Sprint("node-", i), Hostname: fmt.Sprint("cp-", i), Addresses: []netip.Addr{netip.MustParseAddr(address(i))}, ControlPlane: true, APIPort: 1})
		members = append(members, talos.EtcdMember{ID: uint64(i), Hostname: fmt.Sprint("cp-", i), PeerURLs: []string{"https://" + address(i) + ":2380"}})
	}
	for i, peer := range peers {
		machine := talostest.NewMachine(talostest.State{
			Mode: talostest.Configured, Members: members, Database: snapshot(t),
			Survey: talos.Survey{
				NodeID: peer.NodeID, Hostname: peer.Hostname, ControlPlane: true, TalosVersion: "v1.13.9", TimeSynced: true, Addresses: peer.Addresses, Peers: peers,
				Stage:    talos.MachineStage{Stage: v1alpha1.StageRunning, Ready: true},
				Services: []talos.Service{{ID: "etcd", State: "Running", Healthy: true}, {ID: "kubelet", State: "Running", Healthy: true}},
			},
			Etcd: &talos.EtcdStatus{MemberID: uint64(i + 1), Leader: 1, RaftTerm: 3, RaftIndex: uint64(100 + i), RaftApplied: uint64(100 + i), Size: 20480, InUse: 10240, Version: "3.6.4"},
		})
		s.planes = append(s.planes, machine)
		s.world.Put(address(i+1), machine)
	}
	return s
}

// loseQuorum takes the power of the second and the third control plane.
func (s *site) loseQuorum() {
	s.world.Put(address(2), nil)
	s.world.Put(address(3), nil)
	s.planes[0].Do(func(state *talostest.State) {
		state.NoQuorum, state.Etcd.Leader, state.Etcd.Errors = true, 0, []string{"etcdserver: no leader"}
	})
}

func (s *site) write(name string, text []byte, mode os.FileMode) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		s.t.Fatal(err)
	}
	return path
}

type result struct {
	out, err string
	code     int
}

// run calls the program. There is a kubeconfig, and nothing in it.
func (s *site) run(args ...string) result {
	s.t.Helper()
	kubeconfig := s.write("kubeconfig", nil, 0o600)
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	var out, errOut bytes.Buffer
	env := &cli.Env{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(s.typed), Out: &out, ErrOut: &errOut},
		Terminal:  cli.Terminal{In: s.person, Err: s.person, NoColor: true, Dumb: true},
		Now:       func() time.Time { return now },
		Dialer:    s.world, Prober: s.world,
	}
	code := app.Run(ctx, env, append([]string{"ichor", "--kubeconfig", kubeconfig}, args...))
	return result{out.String(), errOut.String(), code}
}

// direct calls it with the bundle and the first control plane's address.
func (s *site) direct(args ...string) result {
	s.t.Helper()
	return s.run(append([]string{"--direct", "--bundle", s.file, "--nodes", address(1)}, args...)...)
}

// roles are those of the latest client certificate that a control plane was shown.
func (s *site) roles(number int) ([]string, time.Time) {
	s.t.Helper()
	block, _ := pem.Decode(s.planes[number-1].Snapshot().Credentials.Certificate)
	if block == nil {
		return nil, time.Time{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	return certificate.Subject.Organization, certificate.NotAfter
}

// snapshot is a whole snapshot of etcd with one key.
func snapshot(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		value, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte("/registry/x")})
		if err != nil {
			return err
		}
		keys, err := tx.CreateBucket([]byte("key"))
		if err != nil {
			return err
		}
		revision := binary.BigEndian.AppendUint64(nil, 41)
		if err := keys.Put(binary.BigEndian.AppendUint64(append(revision, '_'), 0), value); err != nil {
			return err
		}
		_, err = tx.CreateBucket([]byte("meta"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return append(content, sum[:]...)
}
