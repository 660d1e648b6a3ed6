// SPDX-License-Identifier: Apache-2.0

package ichorusers

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// quick keeps tests short; what is checked is the same.
var quick = cost{memory: 64, passes: 1, lanes: 1}

func TestOnlyThePasswordFitsItsHash(t *testing.T) {
	t.Parallel()
	stored, err := hashPassword(t.Context(), "correct horse battery", quick)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(stored, "$argon2id$v=19$m=64,t=1,p=1$") || strings.Contains(stored, "horse") {
		t.Errorf("stored as %q", stored)
	}
	for password, want := range map[string]bool{"correct horse battery": true, "Correct horse battery": false, "": false} {
		if got, err := verifyPassword(t.Context(), password, stored); err != nil || got != want {
			t.Errorf("%q: want %t, got %t %v", password, want, got, err)
		}
	}
}

func TestOnePasswordTwiceIsTwoHashes(t *testing.T) {
	t.Parallel()
	first, err := hashPassword(t.Context(), "correct horse battery", quick)
	if err != nil {
		t.Fatal(err)
	}
	second, err := hashPassword(t.Context(), "correct horse battery", quick)
	if err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Errorf("both are %s", first)
	}
}

func TestWhatIsNoHashFitsNothing(t *testing.T) {
	t.Parallel()
	for _, stored := range []string{
		"", "plain", "$2y$10$abc", "$argon2id$v=18$m=64,t=1,p=1$AAAA$AAAA", "$argon2id$v=19$m=0,t=1,p=1$AAAA$AAAA",
		"$argon2id$v=19$m=4294967295,t=1,p=1$AAAA$AAAA", "$argon2id$v=19$m=64,t=1,p=1$A$AAAA", "$argon2id$v=19$m=64,t=1,p=1$AAAA$AAAA",
	} {
		if fits, err := verifyPassword(t.Context(), "", stored); fits || !errors.Is(err, errNoHash) {
			t.Errorf("%q: want %v, got %t %v", stored, errNoHash, fits, err)
		}
	}
}

func TestHashingStopsWaitingWithItsRequest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// With the request gone, either the place is taken at once or waiting ends; it never hangs.
	if _, err := derive(ctx, "x", make([]byte, saltLength), quick); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("want %v, got %v", context.Canceled, err)
	}
}
