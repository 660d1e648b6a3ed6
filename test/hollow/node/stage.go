// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/protobuf/proto"

	"maesh.dev/ichor/test/hollow/facts"
	"maesh.dev/ichor/test/hollow/sequence"
)

// stageTracker derives the stage from the events, as Talos does (Talos: controllers/runtime/machine_status.go).
type stageTracker struct {
	stage   runtime.MachineStage
	running sequence.Name
}

// maintenanceTask is the task whose start and stop tell that the machine waits for a configuration.
const maintenanceTask = "runningMaintenance"

// sequenceStages are the stages that begin with a sequence; install is told by its phases.
var sequenceStages = map[sequence.Name]runtime.MachineStage{
	sequence.Initialize:         runtime.MachineStageBooting,
	sequence.Boot:               runtime.MachineStageBooting,
	sequence.Shutdown:           runtime.MachineStageShuttingDown,
	sequence.Upgrade:            runtime.MachineStageUpgrading,
	sequence.StageUpgrade:       runtime.MachineStageUpgrading,
	sequence.MaintenanceUpgrade: runtime.MachineStageUpgrading,
	sequence.Reset:              runtime.MachineStageResetting,
	sequence.Reboot:             runtime.MachineStageRebooting,
}

func (t *stageTracker) see(event proto.Message) {
	switch e := event.(type) {
	case *machine.SequenceEvent:
		t.seeSequence(e)
	case *machine.PhaseEvent:
		if e.GetAction() != machine.PhaseEvent_START {
			return
		}
		if t.running == sequence.Install && e.GetPhase() == "install" {
			t.stage = runtime.MachineStageInstalling
		}
		kexecs := []sequence.Name{sequence.Install, sequence.Upgrade, sequence.StageUpgrade, sequence.MaintenanceUpgrade}
		if e.GetPhase() == "kexec" && slices.Contains(kexecs, t.running) {
			t.stage = runtime.MachineStageRebooting
		}
	case *machine.TaskEvent:
		if e.GetTask() != maintenanceTask {
			return
		}
		if e.GetAction() == machine.TaskEvent_START {
			t.stage = runtime.MachineStageMaintenance
		} else {
			t.stage = runtime.MachineStageBooting
		}
	}
}

func (t *stageTracker) seeSequence(e *machine.SequenceEvent) {
	name := sequence.Name(e.GetSequence())
	switch e.GetAction() {
	case machine.SequenceEvent_START:
		t.running = name
		if stage, ok := sequenceStages[name]; ok {
			t.stage = stage
		}
	case machine.SequenceEvent_NOOP:
		t.running = name
		if e.GetError().GetCode() == common.Code_FATAL && name != sequence.Shutdown {
			t.stage = runtime.MachineStageRebooting
		}
	case machine.SequenceEvent_STOP:
		if name == sequence.Boot && e.GetError() == nil {
			t.stage = runtime.MachineStageRunning
		}
		t.running = ""
	}
}

// publish adds an event and follows it with the stage.
func (b *boot) publish(ctx context.Context, event proto.Message) {
	b.mu.Lock()
	b.ring.Publish(ctx, event)
	before := b.stages.stage
	b.stages.see(event)
	changed := b.stages.stage != before
	b.mu.Unlock()
	if changed {
		b.refresh()
	}
}

// updateStatus computes MachineStatus from a view, stores it and tells of a change with an event.
func (b *boot) updateStatus(ctx context.Context, v facts.View) {
	b.mu.Lock()
	next := runtime.MachineStatusSpec{Stage: b.stages.stage}
	b.mu.Unlock()
	next.Status.UnmetConditions = unmetConditions(next.Stage, v)
	next.Status.Ready = len(next.Status.UnmetConditions) == 0
	r := runtime.NewMachineStatus()
	*r.TypedSpec() = next
	if err := b.store.Put(ctx, "runtime.MachineStatusController", r); err != nil {
		b.storeError(err)
		return
	}
	b.mu.Lock()
	same := reflect.DeepEqual(b.status, next)
	b.status = next
	b.mu.Unlock()
	if same {
		return
	}
	b.ring.Publish(ctx, statusEvent(next))
	b.node.notify()
	if next.Stage == runtime.MachineStageRunning && next.Status.Ready {
		b.spawn(func(context.Context) {
			// Ready once: an upgrade is good, there is no way back by itself any more.
			if _, fresh := b.metaValue(meta.Upgrade); fresh {
				if err := b.dropMeta(meta.Upgrade); err != nil {
					b.log.Error("drop the upgrade's tag", "error", err)
				}
			}
		})
	}
}

func statusEvent(s runtime.MachineStatusSpec) *machine.MachineStatusEvent {
	e := &machine.MachineStatusEvent{
		Stage:  machine.MachineStatusEvent_MachineStage(s.Stage),
		Status: &machine.MachineStatusEvent_MachineStatus{Ready: s.Status.Ready},
	}
	for _, c := range s.Status.UnmetConditions {
		e.Status.UnmetConditions = append(e.Status.UnmetConditions,
			&machine.MachineStatusEvent_MachineStatus_UnmetCondition{Name: c.Name, Reason: c.Reason})
	}
	return e
}

// unmetConditions are judged while booting and running only; in any other stage the machine is ready by definition.
func unmetConditions(stage runtime.MachineStage, v facts.View) []runtime.UnmetCondition {
	if stage != runtime.MachineStageBooting && stage != runtime.MachineStageRunning {
		return nil
	}
	var unmet []runtime.UnmetCondition
	add := func(name, reason string) {
		if reason != "" {
			unmet = append(unmet, runtime.UnmetCondition{Name: name, Reason: reason})
		}
	}
	add("network", networkProblems(v))
	add("services", serviceProblems(v))
	add("staticPods", podProblems(v))
	add("nodeReady", nodeProblem(v))
	return unmet
}

func networkProblems(v facts.View) string {
	var waiting []string
	if !v.Address.IsValid() {
		waiting = append(waiting, "address", "connectivity")
	}
	if v.Hostname == "" {
		waiting = append(waiting, "hostname")
	}
	if len(waiting) == 0 {
		return ""
	}
	return "waiting on: " + strings.Join(waiting, ", ")
}

func serviceProblems(v facts.View) string {
	required := []string{"apid", "machined", "kubelet"}
	if t := v.Type(); t == machinetype.TypeControlPlane || t == machinetype.TypeInit {
		required = append(required, "etcd", "trustd")
	}
	var problems []string
	running := map[string]bool{}
	for _, s := range v.Services {
		running[s.ID] = s.Running
		if !s.Unknown && !s.Healthy {
			problems = append(problems, s.ID+" not healthy")
		}
	}
	for _, id := range required {
		if !running[id] {
			problems = append(problems, id+" not running")
		}
	}
	return strings.Join(problems, ", ")
}

func podProblems(v facts.View) string {
	var problems []string
	for _, pod := range v.Workload.StaticPods {
		if !pod.Ready {
			problems = append(problems, fmt.Sprintf("kube-system/%s not ready", pod.Name))
		}
	}
	return strings.Join(problems, ", ")
}

func nodeProblem(v facts.View) string {
	if v.Type() == machinetype.TypeUnknown || v.Hostname == "" || v.Active.Machine().Kubelet().SkipNodeRegistration() {
		return ""
	}
	switch {
	case !v.Workload.NodeRegistered:
		return fmt.Sprintf("node %q status is not available yet", v.Hostname)
	case !v.Workload.NodeReady:
		return fmt.Sprintf("node %q is not ready", v.Workload.NodeName)
	}
	return ""
}
