// SPDX-License-Identifier: Apache-2.0

package direct_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/direct"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestStatusWithQuorumLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.loseQuorum()
	r := s.direct("status")
	if r.code != 0 || r.err != "" {
		t.Fatalf("status %d, said %q", r.code, r.err)
	}
	for _, line := range []string{
		"  cp-1  127.0.0.1  control plane  running  Talos v1.13.9, etcd healthy, kubelet healthy\n",
		"  cp-2  127.0.0.2  control plane  silent ",
		"quorum lost: 1 of 3 voters answer, a quorum takes 2\n",
		"members as Talos' discovery knows control planes",
		"cp-1  voter  answers         applied 100 of 100, term 3, database 20 KiB, etcdserver: no leader\n",
		"cp-3  voter  doesn't answer ",
		"https://127.0.0.1:1  doesn't answer",
		"What is lost\n  • etcd on cp-2 and cp-3 doesn't answer: etcd has no quorum",
		"Workloads keep running.\n",
		"Next safe move\n  1. Take a snapshot now, of cp-1",
		"→ ichor --direct --bundle " + s.file + " --nodes 127.0.0.1 --kubeconfig " + filepath.Join(s.dir, "kubeconfig") + " snapshot\n",
		"2. Bring back any 1 of cp-2 (127.0.0.2) and cp-3 (127.0.0.3)",
	} {
		if !strings.Contains(r.out, line) {
			t.Errorf("it doesn't say %q:\n%s", line, r.out)
		}
	}
	var report direct.Report
	if r := s.direct("status", "-o", "json"); r.code != 0 || json.Unmarshal([]byte(r.out), &report) != nil {
		t.Fatalf("as JSON: status %d, %s%s", r.code, r.out, r.err)
	}
	if report.Etcd.Quorum != direct.QuorumLost || report.Etcd.Voters != 3 || report.Etcd.Answering != 1 || report.Etcd.MostAdvanced != "cp-1" || len(report.Nodes) != 3 || len(report.Next) < 2 || len(report.Lost) < 2 {
		t.Errorf("report %+v", report)
	}
	if roles, until := s.roles(1); len(roles) != 1 || roles[0] != "os:reader" || until.After(now.Add(time.Hour)) {
		t.Errorf("it came with the roles %q until %s, want os:reader for at most an hour", roles, until)
	}
}

func TestEtcdLists(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.planes[1].Do(func(state *talostest.State) { state.Alarms = []talos.EtcdAlarm{{MemberID: 2, Kind: "NOSPACE"}} })
	r := s.direct("etcd")
	for _, line := range []string{
		"quorum held: 3 of 3 voters answer, a quorum takes 2, tolerates the loss of 1 more\n",
		"alarm NOSPACE of cp-2\n",
		"ID  HOSTNAME  ADDRESS    LEARNER  ANSWERS  LEADER  TERM  INDEX  APPLIED  DB SIZE  IN USE  VERSION  NOTE\n",
		"3   cp-3      127.0.0.3  false    true     false   3     102    102      20 KiB   10 KiB  3.6.4\n",
		"etcd is full",
	} {
		if !strings.Contains(r.out, line) {
			t.Errorf("it doesn't say %q:\n%s%s", line, r.out, r.err)
		}
	}
	var etcd direct.Etcd
	if r := s.direct("etcd", "-o", "json"); r.code != 0 || json.Unmarshal([]byte(r.out), &etcd) != nil {
		t.Fatalf("as JSON: status %d, %s%s", r.code, r.out, r.err)
	}
	if diff := cmp.Diff([]direct.Alarm{{Member: "cp-2", Kind: "NOSPACE"}}, etcd.Alarms); diff != "" || etcd.Source != direct.FromEtcd || !etcd.Members[0].Leader {
		t.Errorf("etcd %+v, alarms (-want +got):\n%s", etcd, diff)
	}
	if r := s.direct("etcd", "-o", "yaml"); r.code != 0 || !strings.Contains(r.out, "quorum: Held\n") {
		t.Errorf("as YAML: status %d, %s%s", r.code, r.out, r.err)
	}
}

func TestASnapshotIsTakenOfTheMostAdvanced(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := filepath.Join(s.dir, "etcd.db")
	r := s.direct("snapshot", path, "-o", "json")
	var taken direct.Taken
	if r.code != 0 || json.Unmarshal([]byte(r.out), &taken) != nil {
		t.Fatalf("status %d, %s%s", r.code, r.out, r.err)
	}
	content, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(content, s.planes[2].Snapshot().Database) {
		t.Errorf("the file has %d bytes, %v; want those of cp-3, which has applied the most", len(content), err)
	}
	if taken.Member != "cp-3" || taken.Revision != 41 || taken.Keys != 1 || taken.Hash == "" || taken.Size != int64(len(content)) || taken.File != path || taken.Quorum != direct.QuorumHeld {
		t.Errorf("it says %+v", taken)
	}
	if roles, until := s.roles(3); len(roles) != 1 || roles[0] != "os:etcd:backup" || until.After(now.Add(time.Hour)) {
		t.Errorf("it came with the roles %q until %s, want os:etcd:backup for at most an hour", roles, until)
	}
	if !strings.Contains(r.err, "taking a snapshot of cp-3") {
		t.Errorf("progress: %q", r.err)
	}

	r = s.direct("snapshot", path)
	if again, err := os.ReadFile(path); r.code != cli.ExitBlocked || err != nil || !bytes.Equal(again, content) {
		t.Errorf("over an existing file: status %d, %s", r.code, r.err)
	}
}

func TestASnapshotWithoutAQuorum(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.loseQuorum()
	path := filepath.Join(s.dir, "etcd.db")
	r := s.direct("snapshot", path)
	if r.code != 0 || !strings.Contains(r.out, "of cp-1 (127.0.0.1), revision 41, 1 keys, hash ") || !strings.Contains(r.out, "etcd had no quorum") {
		t.Errorf("status %d, %s%s", r.code, r.out, r.err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

func TestTheNextMemberIsTriedWhenOneFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.planes[2].Do(func(state *talostest.State) { state.Database = state.Database[:4096] }) // cut short, and no error
	path := filepath.Join(s.dir, "etcd.db")
	r := s.direct("snapshot", path)
	if r.code != 0 || !strings.Contains(r.err, "cp-3 gave no snapshot") || !strings.Contains(r.out, "of cp-2 (127.0.0.2)") {
		t.Errorf("status %d, %s%s", r.code, r.out, r.err)
	}
	r = s.direct("snapshot", filepath.Join(s.dir, "other.db"), "--from", "cp-3")
	if r.code != cli.ExitFailed || !strings.Contains(r.err, "no checksum") {
		t.Errorf("of that member only: status %d, %s%s", r.code, r.out, r.err)
	}
	if r := s.direct("snapshot", filepath.Join(s.dir, "other.db"), "--from", "cp-9"); r.code != cli.ExitFailed || !strings.Contains(r.err, `"cp-9"`) {
		t.Errorf("of nobody: status %d, %s", r.code, r.err)
	}
	if found, err := filepath.Glob(filepath.Join(s.dir, "*other*")); err != nil || len(found) > 0 {
		t.Errorf("it left %v, %v", found, err)
	}
}

func TestNothingIsTakenOfAnotherMember(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	looks := 0
	s.world.Before = func() error {
		// The looks: three machines and their peers; then the connection for the snapshot.
		if looks++; looks == 4 {
			s.planes[2].Do(func(state *talostest.State) { state.Etcd = &talos.EtcdStatus{MemberID: 0xbad} })
		}
		return nil
	}
	r := s.direct("snapshot", filepath.Join(s.dir, "etcd.db"), "--from", "cp-3")
	if r.code != cli.ExitFailed || !strings.Contains(r.err, "now member bad is") {
		t.Errorf("status %d, %s%s", r.code, r.out, r.err)
	}
}

func TestExitStatuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*site)
		code   int
		says   string
	}{
		"nothing answers": {func(s *site) { s.world.Put(address(1), nil) }, cli.ExitFailed, "no machine of the cluster answers"},
		"all refuse":      {func(s *site) { s.planes[0].Do(func(state *talostest.State) { state.Mode = talostest.Locked }) }, cli.ExitForbidden, "is it this cluster's?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			tc.change(s)
			for _, command := range []string{"status", "etcd", "snapshot"} {
				r := s.direct(command)
				if r.code != tc.code || !strings.Contains(r.err, tc.says) {
					t.Errorf("%s: status %d, %s, want %d and %q", command, r.code, r.err, tc.code, tc.says)
				}
				if command != "snapshot" && !strings.Contains(r.out, "What is lost") {
					t.Errorf("%s says nothing of what is lost:\n%s", command, r.out)
				}
			}
		})
	}
}

func TestFlagsThatDontFit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"etcd without --direct":         {[]string{"etcd"}, "add --direct --bundle FILE"},
		"snapshot without --direct":     {[]string{"snapshot"}, "add --direct --bundle FILE"},
		"no bundle":                     {[]string{"--direct", "status"}, "--direct needs --bundle FILE"},
		"a bundle without --direct":     {[]string{"--bundle", s.file, "status"}, "--bundle is for --direct"},
		"nodes without --direct":        {[]string{"status", "--nodes", "127.0.0.1"}, "--nodes is for --direct"},
		"another command":               {[]string{"--direct", "--bundle", s.file, "machine", "list"}, "--direct is for status, etcd and snapshot"},
		"a format that there isn't":     {[]string{"--direct", "--bundle", s.file, "etcd", "-o", "wide"}, "neither json nor yaml"},
		"a format without --direct":     {[]string{"status", "-o", "json"}, "kubectl get ichor -o json"},
		"no machine, and no kubeconfig": {[]string{"--direct", "--bundle", s.file, "status"}, "name control planes with --nodes"},
		"a machine with a port":         {[]string{"--direct", "--bundle", s.file, "--nodes", "127.0.0.1:50000", "status"}, "without a port"},
		"two files":                     {[]string{"--direct", "--bundle", s.file, "snapshot", "a", "b"}, "one file"},
	} {
		if r := s.run(tc.args...); r.code != cli.ExitUsage || !strings.Contains(r.err, tc.says) || r.out != "" {
			t.Errorf("%s: status %d, %q%s, want 2 and %q", name, r.code, r.out, r.err, tc.says)
		}
	}
	if r := s.run("--direct", "--bundle", filepath.Join(s.dir, "none"), "--nodes", "127.0.0.1", "status"); r.code != cli.ExitFailed || !strings.Contains(r.err, "no such file") {
		t.Errorf("no such bundle: status %d, %s", r.code, r.err)
	}
}

func TestHowABundleIsOpened(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	plain, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	recipient, err := age.NewScryptRecipient("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	recipient.SetWorkFactor(4)
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	encrypt := func(to age.Recipient) []byte {
		var out bytes.Buffer
		writer, err := age.Encrypt(&out, to)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write(plain); err != nil {
			t.Fatal(err)
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	spoken := s.write("spoken.age", encrypt(recipient), 0o644)
	sealed := s.write("sealed.age", encrypt(identity.Recipient()), 0o600)
	key := s.write("key.txt", []byte("# mine\n"+identity.String()+"\n"), 0o600)
	open := s.write("open.yaml", plain, 0o644)
	for name, tc := range map[string]struct {
		args   []string
		typed  string
		person bool
		code   int
		says   string
	}{
		"plain, and others can read it": {args: []string{"--bundle", open}, says: "warning: others can read " + open},
		"from standard input":           {args: []string{"--bundle", "-"}, typed: string(plain)},
		"a passphrase is asked for":     {args: []string{"--bundle", spoken}, typed: "correct horse\n", person: true, says: "Passphrase of " + spoken + ": \n"},
		"a wrong one":                   {args: []string{"--bundle", spoken}, typed: "battery\n", person: true, code: cli.ExitFailed, says: "the passphrase is wrong"},
		"nobody to ask":                 {args: []string{"--bundle", spoken}, typed: "correct horse\n", code: cli.ExitFailed, says: "type the passphrase at a terminal"},
		"the person leaves":             {args: []string{"--bundle", spoken}, person: true, code: cli.ExitUsage, says: "cancelled"},
		"with the identity":             {args: []string{"--bundle", sealed, "--identity", key}},
		"without it":                    {args: []string{"--bundle", sealed}, person: true, code: cli.ExitFailed, says: "name an age identity with --identity FILE"},
		"an identity that isn't there":  {args: []string{"--bundle", sealed, "--identity", filepath.Join(s.dir, "none")}, code: cli.ExitFailed, says: "no such file"},
	} {
		s.typed, s.person = tc.typed, tc.person
		r := s.run(append(append([]string{"--direct"}, tc.args...), "--nodes", address(1), "etcd")...)
		if r.code != tc.code || !strings.Contains(r.err, tc.says) || tc.says == "" && r.err != "" {
			t.Errorf("%s: status %d, %q, want %d and %q", name, r.code, r.err, tc.code, tc.says)
		}
		if strings.Contains(r.out+r.err, "correct horse") || strings.Contains(r.out+r.err, "AGE-SECRET") || strings.Contains(r.out+r.err, "PRIVATE KEY") {
			t.Errorf("%s: it shows a secret:\n%s%s", name, r.out, r.err)
		}
	}
}
