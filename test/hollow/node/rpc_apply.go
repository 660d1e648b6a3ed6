// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/access"
	"maesh.dev/ichor/test/hollow/sequence"
)

// validationMode is the platform "metal", which demands install instructions until something is installed, unless the
// version can do without.
type validationMode struct{ installed bool }

func (validationMode) String() string          { return "metal" }
func (m validationMode) RequiresInstall() bool { return !m.installed }
func (validationMode) InContainer() bool       { return false }

// validationMode is how a configuration is judged now.
func (b *boot) validationMode() (validationMode, error) {
	installed, err := b.installed()
	return validationMode{installed: installed != nil || b.profile.RunsFromMemory}, err
}

type applyMode = machine.ApplyConfigurationRequest_Mode

const (
	applyReboot   = machine.ApplyConfigurationRequest_REBOOT
	applyAuto     = machine.ApplyConfigurationRequest_AUTO
	applyNoReboot = machine.ApplyConfigurationRequest_NO_REBOOT
	applyStaged   = machine.ApplyConfigurationRequest_STAGED
	applyTry      = machine.ApplyConfigurationRequest_TRY
)

// Texts of mode_details.
const (
	detailReboot   = "Applied configuration with a reboot"
	detailNoReboot = "Applied configuration without a reboot"
	detailStaged   = "Staged configuration to be applied after the next reboot"
)

// ApplyConfiguration implements MachineService. Each call that carries bytes is recorded.
func (s *machineService) ApplyConfiguration(ctx context.Context, in *machine.ApplyConfigurationRequest) (*machine.ApplyConfigurationResponse, error) {
	if len(in.GetData()) > 0 && s.boot.node.faults.takeCutApply() {
		s.boot.node.traffic.breakAll()
		return nil, status.Error(codes.Unavailable, "connection lost")
	}
	record := Apply{BootID: s.boot.id, Mode: in.GetMode().String(), DryRun: in.GetDryRun(), Maintenance: !s.boot.configured()}
	if p, ok := peer.FromContext(ctx); ok {
		record.Peer = p.Addr.String()
	}
	if d := s.boot.node.faults.takeLateApply(); d > 0 {
		if !pause(s.boot.ctx, d) {
			return nil, status.Error(codes.Unavailable, "the node is going down")
		}
		ctx = context.WithoutCancel(ctx)
	}
	reply, err := s.boot.apply(ctx, in)
	if len(in.GetData()) > 0 {
		record.Accepted = err == nil
		if err != nil {
			text, _, _ := strings.Cut(status.Convert(err).Message(), "\n")
			record.Outcome = status.Code(err).String() + ": " + text
		} else {
			record.Outcome = reply.GetMessages()[0].GetMode().String()
		}
		if logErr := s.boot.node.applies.add(record, in.GetData()); logErr != nil {
			s.boot.log.Error("record an apply", "error", logErr)
		}
		s.boot.node.notify()
	}
	if err == nil && !in.GetDryRun() && s.boot.node.faults.takeDropApply() {
		s.boot.node.traffic.breakAll()
		return nil, status.Error(codes.Unavailable, "connection lost")
	}
	return reply, err
}

func (b *boot) apply(ctx context.Context, in *machine.ApplyConfigurationRequest) (*machine.ApplyConfigurationResponse, error) {
	select {
	case b.applying <- struct{}{}:
		defer func() { <-b.applying }()
	default:
		return nil, status.Error(codes.FailedPrecondition, "another apply configuration is already in progress")
	}
	b.mu.Lock()
	rebooting := b.rebooting
	b.mu.Unlock()
	if rebooting {
		return nil, status.Error(codes.FailedPrecondition,
			"configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot")
	}
	maintenance := !b.configured()
	if maintenance && b.profile.MaintenanceServer {
		return b.applyInMaintenance(ctx, in)
	}
	if !maintenance && !access.Roles(ctx).Includes(role.Admin) {
		return nil, access.ErrNotAuthorized
	}
	if in.GetMode() != applyTry {
		b.cancelRollback()
	}
	cfg, warnings, err := b.checkConfig(ctx, in.GetData(), maintenance)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	mode, details, err := b.chooseMode(in.GetMode(), cfg, maintenance)
	if err != nil {
		return nil, err
	}
	if in.GetDryRun() {
		return b.dryRun(mode, details, cfg)
	}
	b.kernelLog.printf("[talos] apply config request: mode %s", strings.ToLower(in.GetMode().String()))
	if mode == applyTry {
		timeout := constants.ConfigTryTimeout
		if in.GetTryModeTimeout() != nil {
			timeout = in.GetTryModeTimeout().AsDuration()
		}
		details += fmt.Sprintf("\nThe config is applied in 'try' mode and will be automatically reverted back in %s", timeout)
		b.rollBackAfter(timeout)
	}
	if err := b.take(mode, cfg); err != nil {
		return nil, err
	}
	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{{Mode: mode, Warnings: warnings, ModeDetails: details}}}, nil
}

// checkConfig parses and validates, first as anyone could, then against this machine.
func (b *boot) checkConfig(ctx context.Context, data []byte, maintenance bool) (config.Provider, []string, error) {
	cfg, err := b.parseConfig(data)
	if err != nil {
		return nil, nil, err
	}
	if !maintenance && cfg.RawV1Alpha1() == nil {
		return nil, nil, fmt.Errorf("the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config instead?")
	}
	warnings, err := b.validate(cfg)
	if err != nil {
		return nil, nil, err
	}
	more, err := b.validateHere(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	return cfg, slices.Concat(warnings, more), nil
}

// validate judges a configuration as anyone could.
func (b *boot) validate(cfg config.Provider) ([]string, error) {
	mode, err := b.validationMode()
	if err != nil {
		return nil, err
	}
	return cfg.Validate(mode)
}

// validateHere judges a configuration against this machine and the version that it runs.
func (b *boot) validateHere(ctx context.Context, cfg config.Provider) ([]string, error) {
	mode, err := b.validationMode()
	if err != nil {
		return nil, err
	}
	if err := b.checkKubernetes(cfg); err != nil {
		return nil, err
	}
	known, err := withKnownKubernetes(cfg)
	if err != nil {
		return nil, err
	}
	return known.RuntimeValidate(ctx, b.store.State(), mode)
}

// chooseMode turns what was asked for into what will be done, with the text that says so.
func (b *boot) chooseMode(mode applyMode, cfg config.Provider, maintenance bool) (applyMode, string, error) {
	if maintenance && mode == applyReboot {
		mode = applyNoReboot
	}
	if mode == applyReboot && !b.profile.RebootsOnApply {
		return 0, "", status.Error(codes.Unimplemented, "the REBOOT mode is not supported, please use AUTO or NO_REBOOT modes instead")
	}
	var blocker error
	if !maintenance && b.profile.RebootsOnApply {
		blocker = needsReboot(b.activeConfig(), cfg)
	}
	switch mode {
	case applyTry, applyNoReboot:
		if blocker != nil {
			return 0, "", status.Error(codes.InvalidArgument, blocker.Error())
		}
		return mode, detailNoReboot, nil
	case applyStaged:
		return mode, detailStaged, nil
	case applyAuto:
		if blocker != nil {
			return applyReboot, detailReboot + ": " + blocker.Error(), nil
		}
		return applyNoReboot, detailNoReboot, nil
	case applyReboot:
		return mode, detailReboot, nil
	}
	err := fmt.Errorf("incorrect mode '%s' specified for the apply config call", mode)
	if b.profile.RefusesUnknownModes {
		err = status.Error(codes.InvalidArgument, err.Error())
	}
	return 0, "", err
}

func (b *boot) dryRun(mode applyMode, details string, cfg config.Provider) (*machine.ApplyConfigurationResponse, error) {
	// The error text that AUTO adds is in the details of the real thing only.
	details, _, _ = strings.Cut(details, ": ")
	var diff string
	var err error
	if active := b.activeConfig(); active != nil {
		diff, err = configdiff.DiffConfigs(active, cfg)
	} else {
		diff, err = configdiff.DiffConfigs(nil, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to generate diff: %w", err)
	}
	if diff == "" {
		diff = "No changes."
	}
	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{{
		Mode:        mode,
		ModeDetails: fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\nConfig diff:\n\n%s", details, diff),
	}}}, nil
}

// take does what the mode says.
func (b *boot) take(mode applyMode, cfg config.Provider) error {
	if mode != applyTry {
		if err := b.persist(cfg); err != nil {
			return err
		}
	}
	switch mode {
	case applyTry, applyNoReboot:
		b.activate(cfg)
	case applyReboot:
		b.mu.Lock()
		b.rebooting = true
		b.mu.Unlock()
		b.runSequence("", sequence.Reboot, true, b.rebootPhases(nil))
	}
	return nil
}

// rollBackAfter makes the configuration that is active now active again after a time.
func (b *boot) rollBackAfter(timeout time.Duration) {
	b.cancelRollback()
	before := b.activeConfig()
	ctx, cancel := context.WithCancel(b.ctx)
	b.mu.Lock()
	b.rollback = cancel
	b.mu.Unlock()
	b.spawn(func(context.Context) {
		defer cancel()
		if pause(ctx, timeout) && before != nil {
			b.kernelLog.printf("[talos] rolling back the configuration")
			b.activate(before)
		}
	})
}

func (b *boot) cancelRollback() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rollback != nil {
		b.rollback()
		b.rollback = nil
	}
}
