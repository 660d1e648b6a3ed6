// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Seen counts what clients were told, by kind.
type Seen struct {
	mu    sync.Mutex
	kinds map[string]*Kind
}

// Kind is one kind of answer.
type Kind struct {
	// Where is who was asked.
	Where string `json:"where"`
	What  string `json:"what"`
	Count int    `json:"count"`
	// Example is the first one.
	Example string `json:"example"`
}

func newSeen() *Seen { return &Seen{kinds: map[string]*Kind{}} }

const longestExample = 300

func (s *Seen) note(where string, err error) {
	what := kindOf(err)
	key := where + what
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds[key] == nil {
		s.kinds[key] = &Kind{Where: where, What: what, Example: fmt.Sprintf("%.*s", longestExample, err.Error())}
	}
	s.kinds[key].Count++
}

// Kinds are all, the most frequent first.
func (s *Seen) Kinds() []Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Kind
	for _, each := range s.kinds {
		out = append(out, *each)
	}
	slices.SortFunc(out, func(a, b Kind) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Where+a.What, b.Where+b.What)
	})
	return out
}

// kindOf is what an error has in common with others: the status, or what became of the connection.
func kindOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		s := status.Status()
		return strings.TrimSpace(fmt.Sprintf("%d %s: %s", s.Code, s.Reason, gist(s.Message)))
	}
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time (the client's own limit)"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed (EOF)"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time (connection)"
	}
	return "connection: " + gist(err.Error())
}

var (
	quoted = regexp.MustCompile(`"[^"]*"`)
	number = regexp.MustCompile(`[0-9][0-9.:a-f-]*`)
)

// gist is the beginning of a message without what differs from one object to the next.
func gist(message string) string {
	if _, rest, found := strings.Cut(message, `" is forbidden: User `); found {
		message = "may not, says RBAC: " + rest // the words before are the object's name
		return fmt.Sprintf("%.40s", message)
	}
	message = number.ReplaceAllString(quoted.ReplaceAllString(message, `"…"`), "N")
	if len(message) > 90 {
		message = strings.ToValidUTF8(message[:90], "") + "…"
	}
	return message
}
