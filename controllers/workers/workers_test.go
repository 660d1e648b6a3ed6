// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bound is how long a test waits for what should come at once.
const bound = time.Minute

// pool is a pool of one worker whose looks are told of.
func pool(clock *clocktesting.FakeClock, reconcile func(name string) (time.Duration, error)) (Pool, chan string) {
	looked := make(chan string)
	return Pool{
		Name: "test",
		Queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Second, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{Clock: clock},
		),
		Reconcile: func(ctx context.Context, name string) (time.Duration, error) {
			select {
			case looked <- name:
			case <-ctx.Done():
			}
			return reconcile(name)
		},
	}, looked
}

func TestWhenANameIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Resource: "machines"}
	for name, test := range map[string]struct {
		after time.Duration
		err   error
		// again is when it is looked at again; 0 is not at all.
		again time.Duration
	}{
		"nothing is left to do":         {},
		"it asks for it":                {after: 3 * time.Second, again: 3 * time.Second},
		"its copy was old":              {err: apierrors.NewConflict(resource, "a", errors.New("old")), again: afterConflict},
		"the object is gone":            {err: apierrors.NewNotFound(resource, "a"), again: afterConflict},
		"it fails":                      {err: errors.New("no"), again: 5 * time.Second},
		"a deadline of its own is over": {err: context.DeadlineExceeded, again: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := clocktesting.NewFakeClock(time.Now())
			p, looked := pool(clock, func(string) (time.Duration, error) { return test.after, test.err })
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx, 1) }()
			p.Queue.Add("a")
			receive(t, looked)
			if test.again > 0 {
				pass(t, clock, test.again, looked)
			}
			if test.again == 0 {
				clock.Step(time.Hour)
				p.Queue.Add("b")
				if got := receive(t, looked); got != "b" {
					t.Errorf("%s was looked at", got)
				}
			}
			end()
			if err := receive(t, ended); err != nil {
				t.Error(err)
			}
		})
	}
}

// pass lets time pass in steps until a name comes.
func pass(t *testing.T, clock *clocktesting.FakeClock, by time.Duration, looked <-chan string) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	limit := time.After(bound)
	for {
		select {
		case <-looked:
			return
		case <-ticker.C:
			clock.Step(by)
		case <-limit:
			t.Fatal("it isn't looked at again")
		}
	}
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(bound):
		t.Fatal("nothing comes")
		panic("unreachable")
	}
}

func TestWhatWasBegunIsFinishedAndNothingElseIsBegun(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	began, goOn := make(chan struct{}), make(chan struct{})
	var done []string
	p := Pool{
		Name:  "test",
		Queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		Reconcile: func(_ context.Context, name string) (time.Duration, error) {
			close(began)
			<-goOn
			done = append(done, name)
			return 0, nil
		},
	}
	p.Queue.Add("a")
	p.Queue.Add("b")
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, 1) }()
	receive(t, began)
	end()
	close(goOn)
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
	if !slices.Equal(done, []string{"a"}) {
		t.Errorf("%v were finished", done)
	}
}

func TestNothingIsBegunBeforeTheCachesAreFilled(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancelCause(t.Context())
	p, _ := pool(clocktesting.NewFakeClock(time.Now()), func(string) (time.Duration, error) { return 0, nil })
	p.Synced = []cache.InformerSynced{func() bool {
		end(errors.New("it is to end"))
		return false
	}}
	if err := p.Run(ctx, 1); err == nil || !strings.Contains(err.Error(), "fill the caches of the test controller: it is to end") {
		t.Errorf("it says %v", err)
	}
}
