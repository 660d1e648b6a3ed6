// SPDX-License-Identifier: Apache-2.0

package sequence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"maesh.dev/ichor/test/hollow/sequence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder keeps events as short texts.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) publish(_ context.Context, event proto.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := event.(type) {
	case *machine.SequenceEvent:
		line := fmt.Sprintf("%s %s", e.GetSequence(), e.GetAction())
		if e.GetError() != nil {
			line += " " + e.GetError().GetCode().String()
		}
		r.lines = append(r.lines, line)
	case *machine.PhaseEvent:
		r.lines = append(r.lines, fmt.Sprintf("phase %s %s", e.GetPhase(), e.GetAction()))
	case *machine.TaskEvent:
		r.lines = append(r.lines, fmt.Sprintf("task %s %s", e.GetTask(), e.GetAction()))
	}
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func phases(run func(context.Context) error) func() []sequence.Phase {
	return func() []sequence.Phase {
		return []sequence.Phase{{Name: "p", Tasks: []sequence.Task{{Name: "t", Run: run}}}}
	}
}

func TestASequenceTellsItsCourse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		tail []string
	}{
		{"that succeeds", nil, nil},
		{"that fails", errors.New("broken"), []string{"boot NOOP FATAL"}},
		{"that is canceled", context.Canceled, []string{"boot NOOP CANCELED"}},
		{"that reboots", sequence.EndOfBoot{}, []string{"boot NOOP FATAL"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{}
			err := sequence.NewController(r.publish).Run(t.Context(), sequence.Boot, false, phases(func(context.Context) error { return c.err }))
			if !errors.Is(err, c.err) {
				t.Errorf("got %v, want %v", err, c.err)
			}
			want := append([]string{"boot START", "phase p START", "task t START", "task t STOP", "phase p STOP", "boot STOP"}, c.tail...)
			if diff := cmp.Diff(want, r.all()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhoMayPushWhomAside(t *testing.T) {
	t.Parallel()
	all := []sequence.Name{
		sequence.Initialize, sequence.Install, sequence.Boot, sequence.Shutdown, sequence.Upgrade, sequence.StageUpgrade,
		sequence.MaintenanceUpgrade, sequence.Reset, sequence.Reboot,
	}
	may := map[sequence.Name][]sequence.Name{
		sequence.Initialize: {sequence.MaintenanceUpgrade, sequence.Reboot},
		sequence.Boot:       {sequence.Reboot, sequence.Reset, sequence.Upgrade},
		sequence.Reboot:     {sequence.Reboot},
		sequence.Reset:      {sequence.Reboot},
	}
	for _, running := range all {
		for _, next := range all {
			for _, force := range []bool{false, true} {
				want := force || slices.Contains(may[running], next)
				if got := pushesAside(t, running, next, force); got != want {
					t.Errorf("%s over %s, force %t: %t, want %t", next, running, force, got, want)
				}
			}
		}
	}
}

// pushesAside starts one sequence and tries another over it.
func pushesAside(t *testing.T, running, next sequence.Name, force bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := &recorder{}
	c := sequence.NewController(r.publish)
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- c.Run(ctx, running, false, phases(func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			return ctx.Err()
		}))
	}()
	<-started
	err := c.Run(ctx, next, force, phases(func(context.Context) error { return nil }))
	cancel()
	<-ended
	if err != nil && !errors.Is(err, sequence.ErrLocked) {
		t.Errorf("%s over %s: %v", next, running, err)
	}
	if errors.Is(err, sequence.ErrLocked) && !slices.Contains(r.all(), string(next)+" NOOP LOCKED") {
		t.Errorf("%s over %s: no event tells of the refusal: %q", next, running, r.all())
	}
	return err == nil
}
