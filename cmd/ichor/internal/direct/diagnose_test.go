// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

const invocation = "ichor --direct --bundle b.yaml"

// plane is a control plane of a test: the third of three has address 10.0.0.3 and member id 3.
type plane func(v *View)

func address(number int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(number)}) }

func peers(count int) []talos.Peer {
	var list []talos.Peer
	for i := 1; i <= count; i++ {
		list = append(list, talos.Peer{NodeID: fmt.Sprint("node-", i), Hostname: fmt.Sprint("cp-", i), Addresses: []netip.Addr{address(i)}, ControlPlane: true, APIPort: 6443})
	}
	return list
}

func members(count int) []talos.EtcdMember {
	var list []talos.EtcdMember
	for i := 1; i <= count; i++ {
		list = append(list, talos.EtcdMember{ID: uint64(i), Hostname: fmt.Sprint("cp-", i), PeerURLs: []string{fmt.Sprintf("https://%s:2380", address(i))}})
	}
	return list
}

// seen are the views of some control planes that all know of each other.
func seen(planes ...plane) []View {
	views := make([]View, len(planes))
	for i, plane := range planes {
		views[i] = View{Address: address(i + 1), State: Answers, Survey: &talos.Survey{
			NodeID: fmt.Sprint("node-", i+1), Hostname: fmt.Sprint("cp-", i+1), ControlPlane: true, TalosVersion: "v1.13.9", TimeSynced: true,
			Stage: talos.MachineStage{Stage: v1alpha1.StageRunning, Ready: true}, Addresses: []netip.Addr{address(i + 1)}, Peers: peers(len(planes)),
			Services: []talos.Service{{ID: "etcd", State: "Running", Healthy: true}, {ID: "kubelet", State: "Running", Healthy: true}},
		}}
		plane(&views[i])
	}
	return views
}

// follows is a member that follows member 1 and has a quorum; it lists as many as there are.
func follows(number int, count int, applied uint64) plane {
	return func(v *View) {
		v.Status = &talos.EtcdStatus{MemberID: uint64(number), Leader: 1, RaftTerm: 4, RaftIndex: applied, RaftApplied: applied, Size: 1 << 20}
		v.Members = members(count)
	}
}

// leaderless is a member without a quorum.
func leaderless(number int, applied uint64) plane {
	return func(v *View) {
		v.Status = &talos.EtcdStatus{MemberID: uint64(number), RaftTerm: 9, RaftIndex: applied + 2, RaftApplied: applied, Errors: []string{"etcdserver: no leader"}}
	}
}

func silent(v *View) { v.State, v.Message, v.Survey = Silent, "connection refused", nil }

func wiped(v *View) { v.State, v.Message, v.Survey = Maintenance, "in maintenance mode", nil }

func foreign(v *View) { v.State, v.Message, v.Survey = Refused, "unknown authority", nil }

func emptied(v *View) {
	v.StatusProblem = "DeadlineExceeded"
	v.Survey.Services[0] = talos.Service{ID: "etcd", State: preparing, Unknown: true}
}

func etcdDown(v *View) {
	v.StatusProblem = "DeadlineExceeded"
	v.Survey.Services[0] = talos.Service{ID: "etcd", State: "Failed"}
}

func with(p plane, more ...plane) plane {
	return func(v *View) {
		p(v)
		for _, m := range more {
			m(v)
		}
	}
}

func errs(texts ...string) plane {
	return func(v *View) { v.Status.Errors = append(v.Status.Errors, texts...) }
}

func learner(v *View) { v.Status.Learner = true }

func off(seconds time.Duration) plane {
	return func(v *View) {
		v.Survey.ReadAt = time.Unix(1e9, 0)
		v.Survey.Clock = v.Survey.ReadAt.Add(seconds * time.Second)
	}
}

func worker(v *View) { v.Survey.ControlPlane, v.Survey.Peers = false, nil }

var (
	ready    = []API{{URL: "https://10.0.0.1:6443", Answers: true, Ready: true}}
	notReady = []API{{URL: "https://10.0.0.1:6443", Answers: true, Message: "HTTP status 500, failed: etcd"}}
	noAPI    = []API{{URL: "https://10.0.0.1:6443", Message: "connection refused"}}
)

func TestWhatIsLostAndTheNextSafeMove(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		views []View
		apis  []API
		// quorum, and the arithmetic: answering of voters, needed
		quorum Quorum
		sums   [3]int
		// lost and next are parts of what is said, in order; first is the command of the first step, if it has one.
		lost, next []string
		first      string
		// not must not be said.
		not []string
	}{
		"all is well": {
			seen(follows(1, 3, 100), follows(2, 3, 100), follows(3, 3, 100)), ready, QuorumHeld, [3]int{3, 3, 2},
			[]string{"Nothing: etcd has its quorum (3 of 3 voters answer, a quorum takes 2, tolerates the loss of 1 more)"}, []string{"Use the normal commands"}, "ichor status", nil,
		},
		"one of three is down: repair that, leave the others": {
			seen(follows(1, 3, 100), follows(2, 3, 100), silent), ready, QuorumHeld, [3]int{2, 3, 2},
			[]string{"etcd on cp-3 doesn't answer: etcd has its quorum (2 of 3 voters answer, a quorum takes 2, tolerates the loss of 0 more)"},
			[]string{"Take a snapshot now", "Bring cp-3 (10.0.0.3) back", "Remove no other control plane"}, invocation + " snapshot", []string{"recover", "bootstrap"},
		},
		"one of five is down: no hurry": {
			seen(follows(1, 5, 1), follows(2, 5, 1), follows(3, 5, 1), follows(4, 5, 1), silent), ready, QuorumHeld, [3]int{4, 5, 3},
			[]string{"etcd on cp-5 doesn't answer"}, []string{"Bring cp-5 (10.0.0.5) back"}, "", []string{"Take a snapshot"},
		},
		"one of three lost its disk: Ichor provisions it again": {
			seen(follows(1, 3, 100), follows(2, 3, 100), wiped), ready, QuorumHeld, [3]int{2, 3, 2},
			[]string{"etcd on cp-3 doesn't answer"}, []string{"cp-3 lost the disk: with the Kubernetes API there, Ichor gives the machine its configuration again", "Bootstrap nothing"}, invocation + " snapshot", nil,
		},
		"etcd of one of three doesn't run": {
			seen(follows(1, 3, 100), etcdDown, follows(3, 3, 100)), ready, QuorumHeld, [3]int{2, 3, 2},
			[]string{"etcd on cp-2 doesn't answer"}, []string{"cp-2 runs, but its etcd doesn't (Failed)"}, invocation + " snapshot", nil,
		},
		"two of three are silent: bring one back first": {
			seen(leaderless(1, 100), silent, silent), notReady, QuorumLost, [3]int{1, 3, 2},
			[]string{"etcd on cp-2 and cp-3 doesn't answer: etcd has no quorum (1 of 3 voters answer, a quorum takes 2)", "can't write", "Workloads keep running"},
			[]string{"Take a snapshot now, of cp-1", "Bring back any 1 of cp-2 (10.0.0.2) and cp-3 (10.0.0.3) with the disks as they are", "Only if those disks are lost for good", "exactly one control plane", "never bootstrap"},
			invocation + " snapshot", []string{"recover-from", "is gone on"},
		},
		"two of three answer, one without data: the silent one decides": {
			seen(leaderless(1, 100), wiped, silent), noAPI, QuorumLost, [3]int{1, 3, 2},
			[]string{"no quorum", "The data of etcd is gone on cp-2"}, []string{"Take a snapshot now", "Bring back cp-3 (10.0.0.3)", "Only if those disks are lost for good"}, invocation + " snapshot", []string{"recover-from"},
		},
		"two of three lost their disks: a snapshot, then recover on exactly one": {
			seen(leaderless(1, 100), wiped, emptied), noAPI, QuorumLost, [3]int{1, 3, 2},
			[]string{"no quorum", "The data of etcd is gone on cp-2 and cp-3"},
			[]string{"Take a snapshot now, of cp-1", "Too few members have their data left", "made anew from that snapshot", "exactly one", "Never bootstrap without the snapshot, and never a second one"},
			invocation + " snapshot", []string{"Bring back"},
		},
		"etcd is down on two that run": {
			seen(leaderless(1, 100), etcdDown, etcdDown), notReady, QuorumLost, [3]int{1, 3, 2},
			[]string{"no quorum"}, []string{"Take a snapshot", "Get etcd to run again on any 1 of cp-2", "cp-2 runs, but its etcd doesn't (Failed)", "cp-3 runs"}, invocation + " snapshot", []string{"recover-from"},
		},
		"no etcd has data any more: the backup": {
			seen(emptied, emptied, wiped), noAPI, QuorumLost, [3]int{0, 3, 2},
			[]string{"no quorum", "The data of etcd is gone on cp-1, cp-2 and cp-3"}, []string{"made anew from the latest backup"}, "talosctl -n ADDRESS -e ADDRESS bootstrap --recover-from=SNAPSHOT", []string{"Take a snapshot"},
		},
		"the only control plane's etcd is down": {
			seen(etcdDown), noAPI, QuorumLost, [3]int{0, 1, 1},
			[]string{"etcd on cp-1 doesn't answer: etcd has no quorum (0 of 1 voters answer, a quorum takes 1)"}, []string{"Get etcd to run again on cp-1", "cp-1 runs, but its etcd doesn't", "recover etcd from the latest backup"}, "", []string{"recover-from"},
		},
		"enough members answer, and have no leader": {
			seen(leaderless(1, 90), leaderless(2, 100), silent), notReady, QuorumElecting, [3]int{2, 3, 2},
			[]string{"etcd has no leader, though 2 of 3 voters answer"}, []string{"Wait a minute", "port 2380", "Take a snapshot now, of cp-2"}, "", []string{"recover"},
		},
		"the others are there, but not from here": {
			seen(follows(1, 3, 100), silent, silent), ready, QuorumHeld, [3]int{1, 3, 2},
			[]string{"etcd on cp-2 and cp-3 doesn't answer here, but etcd has its quorum: what is lost is the way to them"}, []string{"Check the network between here and cp-2"}, "", []string{"Take a snapshot", "recover"},
		},
		"the Kubernetes API alone is down": {
			seen(with(follows(1, 1, 5), func(v *View) {
				v.Survey.Services[1].Healthy, v.Survey.Services[1].Message = false, "connection refused"
				v.Survey.StaticPods = []talos.StaticPod{{Name: "kube-apiserver-cp-1"}}
			})), noAPI, QuorumHeld, [3]int{1, 1, 1},
			[]string{"The Kubernetes API is not ready anywhere, though etcd has its quorum"}, []string{"Look at kubelet of cp-1: unhealthy (connection refused)", "Look at kube-apiserver of cp-1", "Read the logs"}, "talosctl -n 10.0.0.1 -e 10.0.0.1 service", []string{"recover", "snapshot"},
		},
		"only the balancer is down": {
			seen(follows(1, 1, 5)), []API{ready[0], {URL: "https://api.example:443", Message: "connection refused"}}, QuorumHeld, [3]int{1, 1, 1},
			[]string{"The Kubernetes API is ready at https://10.0.0.1:6443, but not at https://api.example:443"}, []string{"the load balancer"}, "", nil,
		},
		"etcd is full": {
			seen(with(follows(1, 2, 5), func(v *View) { v.Alarms = []talos.EtcdAlarm{{MemberID: 2, Kind: "NOSPACE"}} }), with(follows(2, 2, 5), errs("memberID:2 alarm:NOSPACE "))), ready, QuorumHeld, [3]int{2, 2, 2},
			[]string{"etcd is full (alarm NOSPACE of cp-2)"}, []string{"Take a snapshot now", "Defragment cp-1", "Defragment cp-2", "take the alarm back"}, invocation + " snapshot", nil,
		},
		"a member's data is corrupt: no snapshot of that": {
			seen(with(follows(1, 3, 999), errs("memberID:1 alarm:CORRUPT")), follows(2, 3, 5), follows(3, 3, 5)), ready, QuorumHeld, [3]int{3, 3, 2},
			[]string{"data of cp-1 is corrupt"}, []string{"Take a snapshot now, of cp-2", "Trust no snapshot of cp-1"}, invocation + " snapshot", nil,
		},
		"a learner doesn't count": {
			seen(follows(1, 2, 5), silent, with(leaderless(3, 7), learner)), notReady, QuorumHeld, [3]int{1, 2, 2},
			[]string{"doesn't answer here"}, []string{"Check the network"}, "", nil,
		},
		"a bundle of another cluster": {
			seen(foreign, foreign), nil, QuorumUnknown, [3]int{0, 0, 0},
			[]string{"doesn't belong to the cluster of this bundle"}, []string{"Use the bundle of this cluster"}, "", []string{"power"},
		},
		"nothing answers": {
			seen(silent, silent, foreign), nil, QuorumUnknown, [3]int{0, 0, 0},
			[]string{"No machine of the cluster answers over Talos"}, []string{"Check power and network", "Reset and bootstrap nothing"}, "", []string{"recover"},
		},
		"every machine was wiped": {
			seen(wiped, wiped), nil, QuorumUnknown, [3]int{0, 0, 0},
			[]string{"in maintenance mode"}, []string{"Look for a control plane that still has its disk", "the latest backup"}, "", nil,
		},
		"only a worker answers": {
			seen(worker, silent), nil, QuorumUnknown, [3]int{0, 0, 0},
			[]string{"No control plane answers"}, []string{"Name the control planes with --nodes"}, "", []string{"recover"},
		},
		"a clock is off": {
			seen(with(follows(1, 1, 5), off(-180))), ready, QuorumHeld, [3]int{1, 1, 1},
			[]string{"Nothing"}, []string{"Set the clock of cp-1: it is -180 s off"}, "ichor status", nil,
		},
		"nobody knows where the Kubernetes API is": {
			seen(follows(1, 1, 5)), nil, QuorumHeld, [3]int{1, 1, 1},
			[]string{"isn't known"}, nil, "", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := ReportOf(tc.views, tc.apis)
			etcd := &report.Etcd
			if got := [3]int{etcd.Answering, etcd.Voters, etcd.Needed}; etcd.Quorum != tc.quorum || got != tc.sums {
				t.Errorf("quorum %s, %v (answering, voters, needed); want %s, %v", etcd.Quorum, got, tc.quorum, tc.sums)
			}
			lost, next := Diagnose(report, invocation)
			said := ""
			for _, step := range next {
				said += step.What + "\n" + step.Command + "\n"
			}
			inOrder(t, "lost", strings.Join(lost, "\n"), tc.lost)
			inOrder(t, "next", said, tc.next)
			for _, step := range next { // moves that lose data while a member may come back
				if strings.Contains(step.Command, "reset") || strings.HasSuffix(step.Command, " bootstrap") {
					t.Errorf("it proposes %q", step.Command)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(said, not) {
					t.Errorf("it proposes %q:\n%s", not, said)
				}
			}
			first := ""
			if len(next) > 0 {
				first = next[0].Command
			}
			if tc.first != "" && first != tc.first {
				t.Errorf("the first step is %q, want %q:\n%s", first, tc.first, said)
			}
			if len(lost) == 0 {
				t.Error("it doesn't say what is lost")
			}
		})
	}
}

func inOrder(t *testing.T, what, text string, parts []string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("%s doesn't say %q in its place:\n%s", what, part, text)
			return
		}
		rest = after
	}
}

func TestRecoveryIsOnlyProposedOnceNoQuorumCanComeBack(t *testing.T) {
	t.Parallel()
	kinds := map[string]plane{"silent": silent, "wiped": wiped, "emptied": emptied, "down": etcdDown, "leaderless": leaderless(0, 5)}
	for first, a := range kinds {
		for second, b := range kinds {
			for third, c := range kinds {
				views := seen(a, b, c)
				alive, answering := 0, false
				for i := range views {
					if views[i].Status != nil {
						views[i].Status.MemberID = uint64(i + 1)
						answering = true
					}
				}
				for _, kind := range []string{first, second, third} {
					if kind != "wiped" && kind != "emptied" {
						alive++
					}
				}
				report := ReportOf(views, noAPI)
				_, next := Diagnose(report, invocation)
				said := ""
				for _, step := range next {
					said += step.What + "\n" + step.Command + "\n"
				}
				controlPlane := strings.Contains(first+second+third, "emptied") || strings.Contains(first+second+third, "down") || answering
				if recovers := strings.Contains(said, "recover-from"); recovers && alive >= 2 {
					t.Errorf("%s, %s, %s: recovery is proposed though two may come back:\n%s", first, second, third, said)
				} else if !recovers && alive < 2 && controlPlane {
					t.Errorf("%s, %s, %s: no recovery is proposed:\n%s", first, second, third, said)
				}
				if snapshots := strings.Contains(said, " snapshot\n"); snapshots != answering {
					t.Errorf("%s, %s, %s: a snapshot is proposed: %t, want %t", first, second, third, snapshots, answering)
				}
			}
		}
	}
}

func TestCandidatesForASnapshot(t *testing.T) {
	t.Parallel()
	etcd := &Etcd{
		Members: []Member{
			{Hostname: "silent"},
			{Hostname: "learner", Answers: true, Learner: true, RaftApplied: 900},
			{Hostname: "behind", Answers: true, RaftApplied: 90, RaftIndex: 200},
			{Hostname: "corrupt", Answers: true, RaftApplied: 999},
			{Hostname: "knows more", Answers: true, RaftApplied: 100, RaftIndex: 120},
			{Hostname: "ahead", Answers: true, RaftApplied: 100, RaftIndex: 150, Errors: []string{"etcdserver: no leader"}},
		},
		Alarms: []Alarm{{Member: "corrupt", Kind: corrupt}, {Member: "behind", Kind: noSpace}},
	}
	var got []string
	for _, member := range Candidates(etcd) {
		got = append(got, member.Name())
	}
	if diff := cmp.Diff([]string{"ahead", "knows more", "behind", "learner"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
