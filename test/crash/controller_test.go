// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/cmd/ichor-controller/app"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/crash/killer"
)

const (
	// maxStarts bounds how often a part is started again.
	maxStarts = 2000
	// breath is the time before a controller that ended by itself is started again.
	breath = 200 * time.Millisecond
)

// runController is ichor-controller, but that it dies at its writes.
func runController(ctx context.Context) error {
	options := app.DefaultOptions()
	options.NodeStreamAddress = ""               // nobody reads logs here
	options.Profiling = os.Getenv(soakEnv) != "" // a garbage collection is asked for
	flags := pflag.NewFlagSet(asController, pflag.ContinueOnError)
	options.AddFlags(flags)
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	flags.AddGoFlag(logging.Lookup("v"))
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if err := options.Validate(); err != nil {
		return err
	}
	k, err := open(asController)
	if err != nil {
		return err
	}
	if k == nil {
		return app.Run(ctx, options)
	}
	if atOperations() {
		// Operations ask connections for methods that the killer's don't have.
		return app.RunWith(ctx, options, app.Edges{Transport: k.Transport})
	}
	return app.RunWith(ctx, options, app.Edges{Transport: k.Transport, Dialer: k.Dialer(talos.NewDialer(talos.DialOptions{}))})
}

// supervise starts the controller again at once whenever it died, until it is told to end. The signal USR1 kills the
// controller, whatever it does.
func supervise(ctx context.Context) error {
	// The kernel kills the child when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	strikes := make(chan os.Signal, 16)
	signal.Notify(strikes, syscall.SIGUSR1)
	defer signal.Stop(strikes)
	for range maxStarts {
		died, err := runOnce(ctx, strikes)
		if ctx.Err() != nil {
			return nil
		}
		if died {
			continue
		}
		fmt.Fprintln(os.Stderr, "crash: the controller ended by itself:", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(breath):
		}
	}
	return fmt.Errorf("the controller was started %d times and is not through", maxStarts)
}

// runOnce runs one controller to its end and tells whether it was killed.
func runOnce(ctx context.Context, strikes <-chan os.Signal) (died bool, err error) {
	arguments, err := controllerArguments()
	if err != nil {
		return false, err
	}
	child, err := startPart(asController, os.Stderr, arguments...)
	if err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	stop := ctx.Done()
	for {
		select {
		case err := <-ended:
			return killed(err), err
		case <-strikes:
			_ = child.Process.Kill() // one that has just ended is as good as killed
			if err := note("strikes", "controller"); err != nil {
				return false, err
			}
		case <-stop:
			_ = child.Process.Signal(syscall.SIGTERM)
			stop = nil
		}
	}
}

// controllerArguments are those that the stack gave, with a short Lease: whoever died can't give it back. Once the Lease
// itself was killed at, the controller runs alone, so that not every start waits.
func controllerArguments() ([]string, error) {
	keys, err := killer.Read(journal(asController))
	if err != nil {
		return nil, err
	}
	// A Lease is created once only, and renewed when it is there.
	renewed := atOperations() || slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, " update leases") })
	arguments := slices.Clone(os.Args[1:])
	if renewed {
		return append(arguments, "--leader-elect=false"), nil
	}
	if os.Getenv(soakEnv) != "" {
		return arguments, nil // with Leases as in production: servers go away meanwhile
	}
	return append(arguments, "--leader-elect-lease-duration=2s", "--leader-elect-renew-deadline=1500ms", "--leader-elect-retry-period=250ms"), nil
}

// startPart starts this binary as a part of the product. It ends with this process.
func startPart(part string, output *os.File, arguments ...string) (*exec.Cmd, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", part, err)
	}
	child := exec.Command(binary, arguments...)
	child.Env = append(os.Environ(), partEnv+"="+part)
	child.Stdout, child.Stderr = output, output
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", part, err)
	}
	return child, note("starts", part)
}

// killed tells whether a process ended by a kill.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// note adds a line to a file that the test reads.
func note(name, line string) error {
	file, err := os.OpenFile(at(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("note in %s: %w", name, err)
	}
	_, err = file.WriteString(line + "\n")
	return errors.Join(err, file.Close())
}
