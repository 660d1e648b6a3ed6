// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"slices"
	"sync"
)

// warningList keeps the warnings that a server sends.
type warningList struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader keeps a warning.
func (l *warningList) HandleWarningHeader(_ int, _ string, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts = append(l.texts, text)
}

func (l *warningList) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.texts)
}
