// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// maxQuote is how many characters of somebody else's words are passed on.
	maxQuote = 400
)

// State is what a gate says.
type State string

const (
	// Opened lets the machine begin.
	Opened State = "Open"
	// Waiting may open later: ask again.
	Waiting State = "Waiting"
	// Refused never opens unless a person does something: the operation should stop and tell.
	Refused State = "Refused"
)

// Result is what a gate says, and why: for people, with what to do where that is known. It is empty for one that is open.
type Result struct {
	State   State
	Message string
}

func waiting(format string, args ...any) Result { return Result{Waiting, fmt.Sprintf(format, args...)} }
func refused(format string, args ...any) Result { return Result{Refused, fmt.Sprintf(format, args...)} }

// Occasion is what a gate is asked for: one machine of one operation that is about to begin.
type Occasion struct {
	// Operation and UID are the TalosOperation's.
	Operation string
	UID       types.UID
	// Machine is the TalosMachine's name.
	Machine string
	// Attempt counts up with each resume: a Job that failed isn't looked at again after that, another is made.
	Attempt int64
}

// Checker asks gates. It is safe for concurrent use.
type Checker struct {
	// Kubernetes tells which kinds there are, and has the Jobs.
	Kubernetes kubernetes.Interface
	// Objects reads objects of any kind.
	Objects dynamic.Interface
}

// Check asks one gate. It changes nothing but that it makes the gate's Job if there is none yet, and may be repeated at
// any time: asked again for the same occasion it makes no second one.
//
// An error means that nothing could be found out this time (the API is away, the context has ended): a caller waits as for
// Waiting. How long to wait in all is the caller's business, too.
func (c Checker) Check(ctx context.Context, gate v1alpha1.OperationGate, occasion Occasion) (Result, error) {
	var result Result
	var err error
	switch {
	case gate.CEL != nil:
		result, err = c.checkObject(ctx, gate.CEL)
	case gate.Job != nil:
		result, err = c.checkJob(ctx, gate.Name, gate.Job, occasion)
	default:
		result = refused("it has neither cel nor job")
	}
	if err != nil {
		return Result{}, fmt.Errorf("gate %s: %w", gate.Name, err)
	}
	if result.Message != "" {
		result.Message = fmt.Sprintf("gate %s: %s", gate.Name, result.Message)
	}
	return result, nil
}

// quote shortens words that aren't ours.
func quote(err error) string {
	text := []rune(err.Error())
	if len(text) > maxQuote {
		return string(text[:maxQuote-1]) + "…"
	}
	return string(text)
}

// refusedToUs tells whether the API says that the controller may not.
func refusedToUs(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }
