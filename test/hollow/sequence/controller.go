// SPDX-License-Identifier: Apache-2.0

package sequence

import (
	"context"
	"errors"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
)

// Task is one piece of work with the name that its events carry.
type Task struct {
	Name string
	Run  func(ctx context.Context) error
}

// Phase is a named step of a sequence. A task may be nil: the phase then only shows in the events.
type Phase struct {
	Name  string
	Tasks []Task
}

// EndOfBoot is returned by the task that turns the machine off or starts it again; it is no failure.
type EndOfBoot struct{ PowerOff bool }

// Error implements error.
func (e EndOfBoot) Error() string {
	if e.PowerOff {
		return "power off"
	}
	return "reboot"
}

// Controller runs the sequences of one boot.
type Controller struct {
	lock    *lock
	publish func(ctx context.Context, event proto.Message)
}

// NewController makes a controller that tells its events to publish.
func NewController(publish func(context.Context, proto.Message)) *Controller {
	return &Controller{lock: newLock(), publish: publish}
}

// Run runs a sequence. With force it pushes aside whatever runs. A refusal is an event with the code LOCKED besides the
// error, because on Talos the caller of the API was already answered.
func (c *Controller) Run(ctx context.Context, name Name, force bool, phases func() []Phase) error {
	inner, err := c.lock.acquire(ctx, name, force)
	if err != nil {
		if errors.Is(err, ErrLocked) {
			c.noop(ctx, name, common.Code_LOCKED, "sequence not started: "+err.Error())
		}
		return err
	}
	defer c.lock.release()
	err = c.phases(inner, name, phases())
	if err != nil {
		code := common.Code_FATAL
		if errors.Is(err, context.Canceled) {
			code = common.Code_CANCELED
		}
		c.noop(ctx, name, code, "sequence failed: "+err.Error())
	}
	return err
}

func (c *Controller) noop(ctx context.Context, name Name, code common.Code, message string) {
	c.publish(ctx, &machine.SequenceEvent{
		Sequence: string(name), Action: machine.SequenceEvent_NOOP, Error: &common.Error{Code: code, Message: message},
	})
}

func (c *Controller) phases(ctx context.Context, name Name, phases []Phase) error {
	c.publish(ctx, &machine.SequenceEvent{Sequence: string(name), Action: machine.SequenceEvent_START})
	defer c.publish(ctx, &machine.SequenceEvent{Sequence: string(name), Action: machine.SequenceEvent_STOP})
	for i, phase := range phases {
		if err := c.phase(ctx, phase); err != nil {
			return fmt.Errorf("error running phase %d in %s sequence: %w", i+1, name, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// phase runs the tasks of a phase one after the other; Talos runs them side by side, but here none waits for another.
func (c *Controller) phase(ctx context.Context, phase Phase) error {
	c.publish(ctx, &machine.PhaseEvent{Phase: phase.Name, Action: machine.PhaseEvent_START})
	defer c.publish(ctx, &machine.PhaseEvent{Phase: phase.Name, Action: machine.PhaseEvent_STOP})
	for i, task := range phase.Tasks {
		if err := c.task(ctx, task); err != nil {
			return fmt.Errorf("task %d/%d: failed, %w", i+1, len(phase.Tasks), err)
		}
	}
	return nil
}

func (c *Controller) task(ctx context.Context, task Task) error {
	c.publish(ctx, &machine.TaskEvent{Task: task.Name, Action: machine.TaskEvent_START})
	defer c.publish(ctx, &machine.TaskEvent{Task: task.Name, Action: machine.TaskEvent_STOP})
	return task.Run(ctx)
}
