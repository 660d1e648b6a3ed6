// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// installIdle is how long an installer may say nothing.
	installIdle = 15 * time.Minute
	// legacyTimeout bounds the older call, which checks the image before it answers.
	legacyTimeout = 10 * time.Minute
	// maxKernelLog is how much of a kernel's log is read. The kernel keeps about a megabyte.
	maxKernelLog = 8 << 20
)

// Upgrader is a configured node that can get another version of Talos.
type Upgrader interface {
	PullImage(ctx context.Context, store ImageStore, reference string, progress func(text string)) error
	HasImage(ctx context.Context, store ImageStore, reference string) (bool, error)
	Install(ctx context.Context, image string, progress func(text string)) (exitCode int32, err error)
	Installing(ctx context.Context) (bool, error)
	InstallerTrace(ctx context.Context, image string) (InstallerTrace, error)
	UpgradeLegacy(ctx context.Context, image string) error
}

// ErrNoLifecycle tells that the machine has no LifecycleService (up to Talos 1.12): UpgradeLegacy is for it.
var ErrNoLifecycle = errors.New("the machine has no LifecycleService")

// IsInstalling tells that a call was refused because an installer runs.
// Source: Talos, internal/app/lifecycle: "another installation/upgrade is already in progress".
func IsInstalling(err error) bool {
	return Code(err) == codes.FailedPrecondition && strings.Contains(err.Error(), "already in progress")
}

// Install runs the installer of an image that the machine has, over the running system, and tells what it says. The exit
// code is the installer's; one that isn't 0 is no error. Nothing changes for what runs; whatever boots the machine next,
// also a power cut, boots what was installed. A machine finishes an installer that it began, also when its caller is gone.
func (n *node) Install(ctx context.Context, image string, progress func(text string)) (exitCode int32, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(installIdle, func() { cancel(fmt.Errorf("nothing came for %s", installIdle)) })
	defer stalled.Stop()
	exitCode, err = n.install(ctx, image, func(text string) {
		stalled.Reset(installIdle)
		progress(text)
	})
	if err == nil {
		return exitCode, nil
	}
	if status.Code(err) == codes.Unimplemented {
		err = ErrNoLifecycle
	} else if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return 0, &CallError{Address: n.channel.address, What: "installation of " + image, Err: err}
}

func (n *node) install(ctx context.Context, image string, progress func(string)) (int32, error) {
	stream, err := machineapi.NewLifecycleServiceClient(n.channel).Upgrade(ctx, &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: SystemImages.containerd(), Source: &machineapi.InstallArtifactsSource{ImageName: image},
	})
	if err != nil {
		return 0, err
	}
	code, ended := int32(0), false
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if !ended {
				return 0, errors.New("the machine ended the call without the installer's exit code")
			}
			return code, nil
		}
		if err != nil {
			return 0, err
		}
		switch said := answer.GetProgress().GetResponse().(type) {
		case *machineapi.LifecycleServiceInstallProgress_Message:
			if text := oneLine(said.Message); text != "" {
				progress(text)
			}
		case *machineapi.LifecycleServiceInstallProgress_ExitCode:
			code, ended = said.ExitCode, true
		}
	}
}

// Installing tells whether an installer runs on the machine. It asks for an upgrade without naming an image: that is
// refused before anything is done, and first of all if an installer runs.
// Source: Talos, internal/app/lifecycle (Service.Upgrade takes its lock, then looks at the request).
func (n *node) Installing(ctx context.Context) (bool, error) {
	return read(ctx, n, "asking whether an installer runs", func(ctx context.Context) (bool, error) {
		_, err := n.install(ctx, "", func(string) {})
		switch {
		case IsInstalling(err):
			return true, nil
		case status.Code(err) == codes.InvalidArgument:
			return false, nil
		case status.Code(err) == codes.Unimplemented:
			return false, ErrNoLifecycle
		case err == nil:
			return false, errors.New("the machine took an upgrade to no image")
		default:
			return false, err
		}
	})
}

// InstallerTrace is what a machine's kernel log tells of the last installer of an image that was begun in this boot.
type InstallerTrace int

// The traces.
const (
	// TraceNone tells of no installer of the image.
	TraceNone InstallerTrace = iota
	// TraceBegun tells that one was begun, and nothing of its end: it runs, or the machine's Talos doesn't write the end down.
	TraceBegun
	// TraceSucceeded tells that it ended well.
	TraceSucceeded
	// TraceFailed tells that it ended badly.
	TraceFailed
)

// InstallerTrace looks for what became of an installer whose end wasn't heard. The kernel's log is lost at each boot, so
// what it tells is of this one. It is positive evidence only: Talos writes the beginning, and in later versions the end.
// Source: Talos, internal/app/lifecycle ("starting upgrade", "upgrade completed successfully", "upgrade failed").
func (n *node) InstallerTrace(ctx context.Context, image string) (InstallerTrace, error) {
	return read(ctx, n, "reading the kernel log", func(ctx context.Context) (InstallerTrace, error) {
		stream, err := n.machine.Dmesg(ctx, &machineapi.DmesgRequest{})
		if err != nil {
			return TraceNone, err
		}
		trace := TraceNone
		for size := 0; size <= maxKernelLog; {
			chunk, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return trace, nil
			}
			if err != nil {
				return TraceNone, err
			}
			if err := chunkError(chunk); err != nil {
				return TraceNone, err
			}
			size += len(chunk.GetBytes())
			trace = traceOf(trace, chunk.GetBytes(), image)
		}
		return TraceNone, fmt.Errorf("the kernel's log has more than %d bytes", maxKernelLog)
	})
}

// traceOf carries a trace over one line of the log.
func traceOf(trace InstallerTrace, line []byte, image string) InstallerTrace {
	switch {
	case bytes.Contains(line, []byte("starting upgrade")):
		if names(line, image) {
			return TraceBegun
		}
		return TraceNone // another image was installed over it
	case trace == TraceBegun && bytes.Contains(line, []byte("upgrade completed successfully")):
		return TraceSucceeded
	case trace == TraceBegun && bytes.Contains(line, []byte("upgrade failed")):
		return TraceFailed
	default:
		return trace
	}
}

// names tells whether a line has a reference as a whole: v1.13.1 is no v1.13.10.
func names(line []byte, image string) bool {
	_, rest, found := bytes.Cut(line, []byte(image))
	return found && (len(rest) == 0 || !strings.ContainsRune("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_+", rune(rest[0])))
}

// UpgradeLegacy has a machine without LifecycleService upgrade itself: it drains, installs and reboots. What is on its
// disk stays, and it doesn't judge etcd's health, which the caller has. The call returns when the image was checked;
// whether the machine then did it, its stage and its boot id tell. A machine that is at it already refuses another one, by
// an event only. Source: Talos 1.12, internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go (Upgrade).
func (n *node) UpgradeLegacy(ctx context.Context, image string) error {
	_, err := within(ctx, n, legacyTimeout, "upgrade to "+image, func(ctx context.Context) (struct{}, error) {
		//lint:ignore SA1019 the only way up to 1.12
		answer, err := n.machine.Upgrade(ctx, &machineapi.UpgradeRequest{Image: image, Preserve: true})
		if err != nil {
			return struct{}{}, err
		}
		for _, message := range answer.GetMessages() {
			if text := message.GetMetadata().GetError(); text != "" {
				return struct{}{}, errors.New(oneLine(text))
			}
		}
		return struct{}{}, nil
	})
	return err
}
