// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"fmt"
	"slices"
	"strings"
)

// etcd's words for its alarms.
const (
	noSpace = "NOSPACE"
	corrupt = "CORRUPT"
)

// Diagnose says what is lost and what the next safe moves are. It is a pure function of what was seen; invocation is
// how this program was called, up to the command, so that what it proposes can be copied.
func Diagnose(r *Report, invocation string) (lost []string, next []Step) {
	d := diagnosis{report: r, invocation: invocation}
	switch {
	case !slices.ContainsFunc(r.Nodes, func(n Node) bool { return n.State == Answers }):
		d.nothingAnswers()
	case r.Etcd.Quorum == QuorumUnknown:
		d.noControlPlane()
	case r.Etcd.Quorum == QuorumLost:
		d.quorumLost()
	case r.Etcd.Quorum == QuorumElecting:
		d.noLeader()
	default:
		d.quorumHeld()
	}
	d.clocks()
	return d.lost, d.next
}

type diagnosis struct {
	report     *Report
	invocation string
	lost       []string
	next       []Step
}

func (d *diagnosis) loses(format string, args ...any) {
	d.lost = append(d.lost, fmt.Sprintf(format, args...))
}

func (d *diagnosis) do(command, format string, args ...any) {
	d.next = append(d.next, Step{What: fmt.Sprintf(format, args...), Command: command})
}

// missing are the voters that don't answer, by what it takes to bring them back.
type missing struct {
	// gone have no data any more; sick run, but their etcd doesn't; off don't answer at all.
	gone, sick, off []Member
}

func (m *missing) all() []Member { return slices.Concat(m.off, m.sick, m.gone) }

func (d *diagnosis) missing() missing {
	var m missing
	for _, member := range d.report.Etcd.Members {
		switch {
		case member.Learner || member.Answers:
		case member.DataGone():
			m.gone = append(m.gone, member)
		case member.Machine == Answers:
			m.sick = append(m.sick, member)
		default:
			m.off = append(m.off, member)
		}
	}
	return m
}

func (d *diagnosis) count(state NodeState) int {
	count := 0
	for i := range d.report.Nodes {
		if d.report.Nodes[i].State == state {
			count++
		}
	}
	return count
}

func (d *diagnosis) nothingAnswers() {
	all, refused, empty := len(d.report.Nodes), d.count(Refused), d.count(Maintenance)
	switch {
	case refused > 0 && refused+d.count(NotTalos) == all:
		d.loses("What answers is configured, but doesn't belong to the cluster of this bundle: nothing can be said about etcd.")
		d.do("", "Use the bundle of this cluster, the newest one if a certificate authority was rotated, or other addresses")
		return
	case empty > 0 && empty == all:
		d.loses("Every machine that was asked is in maintenance mode: it has no configuration, and its disks are empty. The cluster is lost on these.")
		d.do("", "Look for a control plane that still has its disk before anything else, and name it with --nodes")
		d.recover(nil)
		return
	}
	d.loses("No machine of the cluster answers over Talos, so nothing can be said about etcd; what runs on them may well keep running.")
	if empty > 0 {
		d.loses("%s in maintenance mode: no configuration, and no data.", isAre(empty, "machine is", "machines are"))
	}
	d.do("", "Check power and network of the machines, and from here the way to port 50000 of each; then look again. Reset and bootstrap nothing meanwhile")
}

func (d *diagnosis) noControlPlane() {
	d.loses("No control plane answers: etcd, and with it the Kubernetes API, can't be looked at. Workers run what they ran.")
	d.do("", "Name the control planes with --nodes, and check their power and network. Reset and bootstrap nothing meanwhile")
}

func (d *diagnosis) noLeader() {
	d.loses("etcd has no leader, though %d of %d voters answer and a quorum takes %d: the Kubernetes API can't write. Workloads keep running.",
		d.report.Etcd.Answering, d.report.Etcd.Voters, d.report.Etcd.Needed)
	d.do("", "Wait a minute and look again: an election may go on")
	d.do("", "If it stays so, the members don't reach each other: check port 2380 between the control planes, and their clocks. Remove no member, reset no machine")
	d.snapshot()
}

func (d *diagnosis) quorumLost() {
	etcd, missing := &d.report.Etcd, d.missing()
	if silent := missing.all(); len(silent) > 0 {
		d.loses("%s: etcd has no quorum (%s).", doNotAnswer(silent), etcd.Arithmetic())
	} else {
		d.loses("etcd has no quorum (%s).", etcd.Arithmetic())
	}
	d.loses("The Kubernetes API can't write, so nothing can be approved, changed or scheduled, and may not read either. Workloads keep running.")
	if len(missing.gone) > 0 {
		d.loses("The data of etcd is gone on %s.", names(missing.gone))
	}
	d.snapshot()
	back := slices.Concat(missing.off, missing.sick)
	if len(back) > 0 {
		which := ""
		if wanted := etcd.Needed - etcd.Answering; wanted > 0 && wanted < len(back) {
			which = fmt.Sprintf("any %d of ", wanted)
		}
		what := "Bring back %s%s with the disks as they are: power, then network. With a quorum everything goes on by itself, and nothing is lost"
		if len(missing.off) == 0 {
			what = "Get etcd to run again on %s%s, with the disks as they are. With a quorum everything goes on by itself, and nothing is lost"
		}
		d.do("", what, which, named(back))
		for _, member := range missing.sick {
			d.do(reboot(member), "%s runs, but its etcd doesn't (%s): read why, then reboot it", member.Name(), orUnknown(member.Service))
		}
	}
	switch possible := etcd.Answering+len(back) >= etcd.Needed; {
	case possible && len(back) > 0:
		d.do("", "Only if those disks are lost for good: recover etcd from %s, on exactly one control plane; docs/break-glass.md has the steps. Until then remove no member, reset no machine, and never bootstrap", d.source())
	default:
		d.recover(Candidates(etcd))
	}
}

// recover is the last resort: etcd is made anew from a snapshot.
func (d *diagnosis) recover(from []Member) {
	where := "ADDRESS"
	if len(from) > 0 && from[0].Address != "" {
		where = from[0].Address
	}
	d.do(fmt.Sprintf("talosctl -n %s -e %s bootstrap --recover-from=SNAPSHOT", where, where),
		"Too few members have their data left for a quorum, so etcd has to be made anew from %s: wipe the data of etcd on every control plane first, then recover on exactly one, and the others join it (docs/break-glass.md). Never bootstrap without the snapshot, and never a second one: that makes two clusters", d.source())
}

// source is what etcd can be made anew from.
func (d *diagnosis) source() string {
	if len(Candidates(&d.report.Etcd)) > 0 {
		return "that snapshot"
	}
	return "the latest backup"
}

func (d *diagnosis) snapshot() {
	if from := Candidates(&d.report.Etcd); len(from) > 0 {
		d.do(d.invocation+" snapshot", "Take a snapshot now, of %s, which has applied the most of those that answer. It reads only", from[0].Name())
	}
}

func (d *diagnosis) quorumHeld() {
	d.alarms()
	d.membersBehindQuorum()
	d.kubernetes()
	if d.report.Etcd.Learners > 0 && len(d.lost) > 0 {
		d.do("", "%s in etcd: wait until it votes before a control plane is taken down", isAre(d.report.Etcd.Learners, "learner is", "learners are"))
	}
	if len(d.lost) == 0 {
		d.lost = []string{"Nothing: etcd has its quorum (" + d.report.Etcd.Arithmetic() + "), and the Kubernetes API is ready."}
		program, _, _ := strings.Cut(d.invocation, " --")
		d.do(program+" status", "Use the normal commands")
	}
}

func (d *diagnosis) alarms() {
	of := map[string][]string{}
	for _, alarm := range d.report.Etcd.Alarms {
		of[alarm.Kind] = append(of[alarm.Kind], alarm.Member)
	}
	if members := of[corrupt]; len(members) > 0 {
		d.loses("etcd says that the data of %s is corrupt, and refuses every change.", join(members))
		d.snapshot()
		d.do("", "Trust no snapshot of %s. While the others have a quorum, replace that one control plane: remove it, and let it join again with an empty disk", join(members))
	}
	if members := of[noSpace]; len(members) > 0 {
		d.loses("etcd is full (alarm NOSPACE of %s): the Kubernetes API can read, and delete, but write nothing else.", join(members))
		d.snapshot()
		for _, member := range d.report.Etcd.Members {
			if member.Answers && member.Address != "" {
				d.do(fmt.Sprintf("talosctl -n %s -e %s etcd defrag", member.Address, member.Address), "Defragment %s; one member after the other, for each stands still meanwhile", member.Name())
			}
		}
		d.do("talosctl -n ADDRESS -e ADDRESS etcd alarm disarm", "Then take the alarm back, on one control plane, and find out what fills etcd")
	}
}

func (d *diagnosis) membersBehindQuorum() {
	etcd, missing := &d.report.Etcd, d.missing()
	silent := missing.all()
	switch {
	case len(silent) == 0:
		return
	case etcd.Answering < etcd.Needed:
		d.loses("%s here, but etcd has its quorum: what is lost is the way to them.", doNotAnswer(silent))
		d.do("", "Check the network between here and %s; there is nothing to repair in etcd", named(silent))
		return
	}
	d.loses("%s: etcd has its quorum (%s).", doNotAnswer(silent), etcd.Arithmetic())
	if etcd.Answering == etcd.Needed {
		d.snapshot()
	}
	if len(missing.off) > 0 {
		d.do("", "Bring %s back: power, then network. Remove no other control plane and reset nothing meanwhile", named(missing.off))
	}
	for _, member := range missing.sick {
		d.do(reboot(member), "%s runs, but its etcd doesn't (%s): read why, then reboot it, and no other", member.Name(), orUnknown(member.Service))
	}
	if len(missing.gone) > 0 {
		d.do("", "%s lost the disk: with the Kubernetes API there, Ichor gives the machine its configuration again, and it joins anew. Bootstrap nothing", names(missing.gone))
	}
}

// kubernetes looks at the API where etcd is no cause.
func (d *diagnosis) kubernetes() {
	var ready, failing []API
	for _, api := range d.report.Kubernetes {
		if api.Ready {
			ready = append(ready, api)
		} else {
			failing = append(failing, api)
		}
	}
	switch {
	case len(failing) == 0 && len(ready) > 0:
		return
	case len(d.report.Kubernetes) == 0:
		d.loses("Whether the Kubernetes API is ready isn't known: no address of it is.")
		return
	case len(ready) == 0:
		d.loses("The Kubernetes API is not ready anywhere, though etcd has its quorum. Workloads keep running.")
	default:
		if len(d.lost) == 0 {
			d.loses("The Kubernetes API is ready at %s, but not at %s.", urls(ready), urls(failing))
			d.do("", "Check what stands between: the machine there, the load balancer or the virtual address")
		}
		return
	}
	for i := range d.report.Nodes {
		node := &d.report.Nodes[i]
		if node.State != Answers || node.Role != ControlPlane {
			continue
		}
		for _, service := range node.Services {
			if service.Name != etcdService && service.Health != Healthy {
				d.do(fmt.Sprintf("talosctl -n %s -e %s service", node.Address, node.Address), "Look at %s of %s: %s", service.Name, orAddress(node), strings.ToLower(service.Health)+ifAny(service.Message))
			}
		}
	}
	d.do("", "Read the logs of kube-apiserver on a control plane (talosctl logs -k), and look for a full disk, an expired certificate or a bad flag; etcd needs no repair")
}

// clocks are a cause of much else: certificates aren't valid yet, or no more.
func (d *diagnosis) clocks() {
	for i := range d.report.Nodes {
		node := &d.report.Nodes[i]
		if offset := node.ClockOffsetSeconds; offset != nil && (*offset > maxClockOffset || *offset < -maxClockOffset) {
			d.do("", "Set the clock of %s: it is %.0f s off, and certificates may not be valid by it", orAddress(node), *offset)
		}
	}
}

// maxClockOffset in seconds is what etcd and certificates bear; Kubernetes and Talos backdate by minutes.
const maxClockOffset = 60

func reboot(member Member) string {
	return fmt.Sprintf("talosctl -n %s -e %s reboot", member.Address, member.Address)
}
