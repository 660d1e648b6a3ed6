// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// named is how many blockers a message names.
const named = 5

// Reason says why something is waited for.
type Reason string

const (
	// Ending is a pod that was evicted and has its time to end.
	Ending Reason = "Ending"
	// Budget is a pod that a PodDisruptionBudget holds.
	Budget Reason = "Budget"
	// Denied is a pod whose eviction was refused for another reason: by a webhook, a namespace that is deleted.
	Denied Reason = "Denied"
	// Attached is a volume that is still attached.
	Attached Reason = "Attached"
	// Schedulable is a Node that isn't cordoned: new pods would come.
	Schedulable Reason = "Schedulable"
)

// Blocker is one thing that a drain waits for.
type Blocker struct {
	Reason Reason
	// Name says what it is: "pod a/b", "volume pvc-…".
	Name string
	// Message says why it holds things up, for people.
	Message string
	// Since is when it began, where that is known.
	Since time.Time
}

func (b Blocker) String() string { return b.Name + " " + b.Message }

// Result is what one pass found.
type Result struct {
	// Done says that nothing is left to do or to wait for.
	Done bool
	// Asked is how many pods the pass evicted or deleted.
	Asked int
	// Blockers are all that is waited for; empty if Done.
	Blockers []Blocker
	// Left are pods that stay on the Node and of which a person should know, with the reason.
	Left []string
}

// Message says for people what is waited for, or what was left; bounded, however much that is. It is empty if all is
// done and nothing was.
func (r Result) Message() string {
	if len(r.Blockers) > 0 {
		texts := make([]string, 0, len(r.Blockers))
		for _, b := range r.Blockers {
			texts = append(texts, b.String())
		}
		return "waits for " + some(texts)
	}
	if !r.Done {
		return "looks at the Node once more: the pods are gone"
	}
	if len(r.Left) > 0 {
		return "left on the Node: " + some(r.Left)
	}
	return ""
}

// some are the first few of many, and how many there are besides.
func some(texts []string) string {
	if len(texts) <= named {
		return strings.Join(texts, "; ")
	}
	return strings.Join(texts[:named], "; ") + fmt.Sprintf("; and %d more", len(texts)-named)
}

// sorted puts what a person can do something about first.
func sorted(blockers []Blocker) []Blocker {
	order := []Reason{Schedulable, Budget, Denied, Attached, Ending}
	slices.SortStableFunc(blockers, func(a, b Blocker) int {
		if by := slices.Index(order, a.Reason) - slices.Index(order, b.Reason); by != 0 {
			return by
		}
		return strings.Compare(a.Name, b.Name)
	})
	return blockers
}
