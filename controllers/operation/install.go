// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// installPatience is how long an installation may take, with the reboot where a machine does both.
	installPatience = 45 * time.Minute
	// installTimeout bounds one run of an installer.
	installTimeout = 40 * time.Minute
	// legacyPatience is how long a machine that was told to upgrade itself may go on running as if it wasn't.
	legacyPatience = 5 * time.Minute
)

// install has the machine run the installer of the planned image, once.
//
// The intent is in the journal before. Whether it was done, after an answer that was lost or by a controller that was killed,
// is decided by what the machine tells:
//   - it runs the version and schematic, or another boot: what was installed was booted, by whoever rebooted it. A machine that is in
//     another boot with the old version and schematic was rebooted before the installer had ended, or went back to its old system; which of
//     the two it was can't be told, and the installer is run in the new boot;
//   - an installer runs, as a second one would be refused: its end is waited for, as it ends without its caller, too;
//   - the kernel log of this boot tells that an installer of this image ended well: it was done.
//
// What a machine can't tell: whether an installer that ended without a word in the log (early builds of Talos 1.13 don't
// write the end down) ended well. Then it is run again: that does no harm, while a reboot into half a system would.
//
// Machines up to 1.12 are told to upgrade themselves, which includes the reboot, so they are judged as before a reboot. One
// that is at it has another stage than running, and refuses to begin a second time.
func (v *visit) install(ctx context.Context) (outcome, error) {
	if v.onErrand() {
		return v.runInstaller(ctx)
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := v.reach(asking, v.m)
	if err != nil {
		return waiting("doesn't answer: %s", err)
	}
	defer node.Close() //nolint:errcheck // it was read from only
	target, ok := node.(talos.Upgrader)
	if !ok {
		return outcome{}, errors.New("the connection to the machine can't upgrade it")
	}
	if came, err := v.sameBoot(asking, node); err != nil || came.message != "" && !came.done {
		return came, err
	} else if came.done {
		return v.otherBoot(asking, node)
	}
	switch running, err := target.Installing(asking); {
	case errors.Is(err, talos.ErrNoLifecycle):
		if came, err := v.fits(asking, node); err != nil || !came.done {
			return came, err
		}
		return v.upgradeLegacy(ctx)
	case err != nil:
		return waiting("can't say whether an installer runs: %s", err)
	case running:
		return waiting("an installer runs")
	}
	trace, err := target.InstallerTrace(asking, v.installer())
	if err != nil {
		return waiting("its kernel log can't be read: %s", err)
	}
	if trace == talos.TraceSucceeded {
		return done("%s was installed, as its kernel log says", v.installer())
	}
	if v.cancelled() {
		return outcome{needless: true, message: "the operation was cancelled before anything was installed"}, nil
	}
	if came, err := v.fits(asking, node); err != nil || !came.done {
		return came, err
	}
	return v.runInstaller(ctx)
}

// fits is mayInstall, right before the machine is told.
func (v *visit) fits(ctx context.Context, node talos.ConfiguredNode) (outcome, error) {
	facts, err := node.Facts(ctx)
	if err != nil {
		return waiting("its version can't be read: %s", err)
	}
	return v.mayInstall(facts.TalosVersion)
}

// otherBoot is what it means that the machine rebooted in this step.
func (v *visit) otherBoot(ctx context.Context, node talos.ConfiguredNode) (outcome, error) {
	facts, err := node.Facts(ctx)
	if err != nil || facts.TalosVersion == "" {
		return waiting("rebooted, and its version can't be read yet: %v", err)
	}
	version, schematic := v.target()
	if isOn(facts.TalosVersion, facts.SchematicID, version, schematic) {
		return done("rebooted into Talos %s", version)
	}
	if v.record.State == v1alpha1.StepActed {
		return done("upgraded itself, and came back with Talos %s", facts.TalosVersion)
	}
	id, err := node.BootID(ctx)
	if err != nil {
		return waiting("its boot id can't be read: %s", err)
	}
	v.record.BootID = id // is written down before it is told anything in this boot
	return outcome{message: fmt.Sprintf("rebooted by somebody else, and runs Talos %s with the schematic %.12s… still", facts.TalosVersion, cmp.Or(facts.SchematicID, machineconfig.PlainSchematicID)), again: pollStep}, nil
}

// runInstaller runs the installer on the connection on which the machine and its boot were recognised. An image that is gone
// meanwhile is pulled again.
func (v *visit) runInstaller(ctx context.Context) (outcome, error) {
	image, boot := v.installer(), v.record.BootID
	return v.errand(ctx, func(v *visit, ctx context.Context, say func(string)) (outcome, error) {
		ctx, cancel := context.WithTimeout(ctx, installTimeout)
		defer cancel()
		if came, err := v.pullOne(ctx, neededImage{talos.SystemImages, image}, say); err != nil || !came.done {
			return came, err
		}
		node, target, came, err := v.sameUpgrader(ctx, boot)
		if node == nil {
			return came, err
		}
		defer node.Close() //nolint:errcheck // what it was told was answered
		last := ""
		say("installs " + image)
		code, err := target.Install(ctx, image, func(text string) {
			last = text
			say("installs " + image + ": " + text)
		})
		switch {
		case talos.IsInstalling(err):
			return waiting("an installer runs")
		case err != nil && talos.Refused(err):
			return failed("%s", err)
		case err != nil:
			return waiting("%s; what came of it is asked of the machine", err)
		case code != 0:
			return failed("the installer of %s ended with exit code %d: %s; nothing was rebooted", image, code, last)
		default:
			return done("%s is installed, and boots next", image)
		}
	})
}

// sameUpgrader connects to the machine in the boot that was written down; the node is nil if that can't be.
func (v *visit) sameUpgrader(ctx context.Context, boot string) (talos.ConfiguredNode, talos.Upgrader, outcome, error) {
	node, err := v.reach(ctx, v.m)
	if err != nil {
		came, err := waiting("doesn't answer: %s", err)
		return nil, nil, came, err
	}
	id, err := node.BootID(ctx)
	target, ok := node.(talos.Upgrader)
	if err != nil || id != boot || !ok {
		return nil, nil, outcome{message: "rebooted meanwhile, or can't say so"}, node.Close()
	}
	return node, target, outcome{}, nil
}

// upgradeLegacy tells a machine of an older version to upgrade itself, unless it was told a short while ago. All that is asked
// before a reboot is asked before this, as it includes one.
func (v *visit) upgradeLegacy(ctx context.Context) (outcome, error) {
	if v.record.State == v1alpha1.StepActed && v.now.Sub(v.record.At.Time) < legacyPatience {
		return waiting("was told to upgrade itself, and still runs")
	}
	if v.cancelled() {
		if v.lasted(v.record) < rebootPatience {
			return waiting("the operation is cancelled; whether the machine was told to upgrade itself before isn't known yet")
		}
		return outcome{needless: true, message: "the operation was cancelled before the machine upgraded itself"}, nil
	}
	if came, err := v.mayGoDown(ctx); err != nil || !came.done {
		return came, err
	}
	image, boot := v.installer(), v.record.BootID
	return v.errand(ctx, func(v *visit, ctx context.Context, _ func(string)) (outcome, error) {
		ctx, cancel := context.WithTimeout(ctx, installTimeout)
		defer cancel()
		node, target, came, err := v.sameUpgrader(ctx, boot)
		if node == nil {
			return came, err
		}
		defer node.Close() //nolint:errcheck // what it was told was answered
		if err := target.UpgradeLegacy(ctx, image); err != nil && !talos.IsLost(err) {
			return failed("%s", err)
		}
		return outcome{acted: true, message: "was told to upgrade itself"}, nil
	})
}
