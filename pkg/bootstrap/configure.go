// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
)

// ensureBundle reads the cluster's secrets from the state directory, or makes them once.
func (r *run) ensureBundle(context.Context) error {
	path := filepath.Join(r.StateDir, bundleFile)
	text, err := os.ReadFile(path)
	if err == nil {
		if r.bundle, err = secretsbundle.Parse(text); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the secrets bundle: %w", err)
	}
	if r.journal.Apply.IntendedAt != nil {
		return fmt.Errorf("%s is gone, but a configuration made from it was sent already; put it back, or wipe the machine and start with an empty state directory", path)
	}
	contract, err := machineconfig.Contract(r.cluster.Spec.TalosVersion)
	if err != nil {
		return err
	}
	if r.bundle, err = secretsbundle.Generate(contract, r.now()); err != nil {
		return err
	}
	if text, err = r.bundle.Marshal(); err != nil {
		return err
	}
	r.tell("made the secrets of cluster %s", r.cluster.Name)
	return writeDurably(path, text)
}

// configure gives the machine its configuration, once, and returns when it runs it.
func (r *run) configure(ctx context.Context) error {
	return r.poll(ctx, func(ctx context.Context) (bool, string, error) {
		probe := r.Prober.Probe(ctx, r.Address)
		sent := r.journal.Apply.IntendedAt != nil
		switch {
		case probe.Class == v1alpha1.HostMaintenance:
			return r.configureInMaintenance(ctx, probe)
		case probe.Class == v1alpha1.HostAlreadyConfigured || sent:
			return r.recogniseConfigured(ctx)
		case probe.Class == v1alpha1.HostNotTalos:
			return false, "", fmt.Errorf("what answers at %s is not Talos: %s", r.Address, probe.Message)
		default:
			return false, fmt.Sprintf("nothing answers at %s: %s", r.Address, probe.Message), nil
		}
	})
}

// configureInMaintenance decides from the journal and the machine whether to send a configuration.
func (r *run) configureInMaintenance(ctx context.Context, probe talos.Probe) (bool, string, error) {
	if probe.Fingerprint != r.Fingerprint {
		return false, "", &talos.FingerprintError{Address: r.Address.String(), Want: r.Fingerprint, Got: probe.Fingerprint}
	}
	if record := r.journal.Apply; record.Fingerprint == string(r.Fingerprint) && record.IntendedAt != nil {
		if record.DoneAt != nil {
			return false, fmt.Sprintf("the machine at %s took its configuration and is about to leave maintenance mode", r.Address), nil
		}
		if r.now().Before(record.IntendedAt.Add(r.applyWindow)) {
			return false, "finding out whether the configuration that was being sent has arrived", nil
		}
	}
	node, err := r.Dialer.DialMaintenance(ctx, r.Address, r.Fingerprint)
	var wrongPin *talos.FingerprintError
	if errors.As(err, &wrongPin) {
		return false, "", wrongPin
	}
	if err != nil {
		return false, err.Error(), nil
	}
	defer func() { _ = node.Close() }()
	waiting, err := r.apply(ctx, node)
	return false, waiting, err
}

// apply sends the configuration over a connection that was verified against the pin.
func (r *run) apply(ctx context.Context, node talos.MaintenanceNode) (waiting string, err error) {
	var other *otherMachineError
	if err := r.checkIdentity(ctx, node); errors.As(err, &other) {
		return "", other
	} else if err != nil {
		return err.Error(), nil
	}
	facts, err := node.Facts(ctx)
	if err != nil {
		return err.Error(), nil
	}
	if facts.Inventory == nil {
		return "the machine has not read its hardware yet", nil
	}
	if facts.Stage.Stage != v1alpha1.StageMaintenance {
		return fmt.Sprintf("the machine is %s", facts.Stage.Stage), nil
	}
	versions := machineconfig.Settle(r.cluster, facts.SchematicID)
	versions.ConfigContract = machineconfig.ContractOf(machineconfig.Facts{MaintenanceVersion: facts.TalosVersion, Versions: versions})
	configuration, err := machineconfig.Render(machineconfig.Inputs{Bundle: r.bundle.Talos(), Cluster: r.cluster, Machine: r.machine, Facts: machineconfig.Facts{
		MaintenanceVersion: facts.TalosVersion, Inventory: facts.Inventory, Versions: versions,
	}})
	if err != nil {
		return "", err
	}
	now := r.now()
	r.journal.Versions = versions
	r.journal.Apply = applyRecord{Fingerprint: string(node.Fingerprint()), ConfigHash: machineconfig.Hash(configuration), IntendedAt: &now}
	if err := r.journal.save(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, r.applyWindow)
	defer cancel()
	_, err = node.ApplyConfiguration(ctx, configuration, talos.ApplyAuto)
	return r.recordApply(err)
}

// recordApply keeps in the journal what is known of an apply.
func (r *run) recordApply(err error) (waiting string, _ error) {
	if err == nil {
		now := r.now()
		r.journal.Apply.DoneAt = &now
		r.tell("the machine at %s took its configuration", r.Address)
		return "", r.journal.save()
	}
	if talos.IsRefusal(err) || talos.IsNotSent(err) {
		r.journal.Apply = applyRecord{}
		if saveErr := r.journal.save(); saveErr != nil {
			return "", errors.Join(err, saveErr)
		}
	}
	if talos.IsRefusal(err) {
		return "", err
	}
	return err.Error(), nil
}

// recogniseConfigured tells whether the configured machine at the address runs what this journal sent.
func (r *run) recogniseConfigured(ctx context.Context) (bool, string, error) {
	node, err := r.dial(ctx)
	var other *otherMachineError
	switch {
	case errors.As(err, &other):
		return false, "", other
	case err != nil && r.journal.Apply.IntendedAt == nil:
		return false, "", fmt.Errorf("the machine at %s is configured already, and not by this run; wipe it first, or use the state directory it was configured from: %w", r.Address, err)
	case err != nil:
		return false, err.Error(), nil
	}
	defer func() { _ = node.Close() }()
	return r.compareRunning(ctx, node)
}

func (r *run) compareRunning(ctx context.Context, node talos.ConfiguredNode) (bool, string, error) {
	record := &r.journal.Apply
	if record.SeenAt != nil {
		return true, "", nil
	}
	running, err := node.RunningConfiguration(ctx)
	if err != nil {
		return false, err.Error(), nil
	}
	if have, want := machineconfig.Hash(running), record.ConfigHash; have != want {
		return false, "", fmt.Errorf("the machine at %s runs a configuration with hash %.12s, but %.12s was sent; somebody else configured it", r.reached, have, want)
	}
	now := r.now()
	record.SeenAt = &now
	if record.DoneAt == nil {
		record.DoneAt = &now
	}
	if err := r.journal.save(); err != nil {
		return false, "", err
	}
	r.tell("the machine at %s runs its configuration", r.reached)
	return true, "", nil
}

// awaitInstalled waits until Talos runs from the approved disk.
func (r *run) awaitInstalled(ctx context.Context) error {
	return r.withNode(ctx, func(ctx context.Context, node talos.ConfiguredNode) (bool, string, error) {
		facts, err := node.Facts(ctx)
		if err != nil {
			return false, err.Error(), nil
		}
		stage := facts.Stage.Stage
		if facts.SystemDisk == nil || stage != v1alpha1.StageBooting && stage != v1alpha1.StageRunning {
			return false, fmt.Sprintf("the machine is %s", stage), nil
		}
		if err := r.checkSystemDisk(facts.SystemDisk); err != nil {
			return false, "", err
		}
		r.facts = facts
		r.tell("Talos %s is installed on %s", facts.TalosVersion, facts.SystemDisk.Device)
		return true, "", nil
	})
}

func (r *run) checkSystemDisk(have *v1alpha1.SystemDisk) error {
	for _, disk := range r.machine.Spec.Disks {
		if disk.Role != v1alpha1.DiskSystem {
			continue
		}
		if disk.Match.Serial != "" && disk.Match.Serial != have.Serial || disk.Match.WWID != "" && disk.Match.WWID != have.WWID {
			return fmt.Errorf("the system disk is %s (serial %s, wwid %s), but %s was decided; look at the machine", have.Device, have.Serial, have.WWID, machineconfig.DescribeMatch(disk.Match))
		}
	}
	return nil
}

// withNode polls with a connection to the configured machine; while it can't be reached, it waits.
func (r *run) withNode(ctx context.Context, look func(context.Context, talos.ConfiguredNode) (bool, string, error)) error {
	return r.poll(ctx, func(ctx context.Context) (bool, string, error) {
		node, err := r.dial(ctx)
		var other *otherMachineError
		if errors.As(err, &other) {
			return false, "", other
		}
		if err != nil {
			return false, err.Error(), nil
		}
		defer func() { _ = node.Close() }()
		return look(ctx, node)
	})
}
