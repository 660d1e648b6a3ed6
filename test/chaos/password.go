// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/crypto/argon2"

	"maesh.dev/ichor/test/chaos/judge"
	"maesh.dev/ichor/test/chaos/load"
	"maesh.dev/ichor/test/chaos/world"
)

// judgePassword tells which of the passwords that were set is stored: the last one that was acknowledged, or one whose
// outcome nobody knows.
func (r *run) judgePassword(ctx context.Context, etcd *clientv3.Client) error {
	got, err := etcd.Get(ctx, world.Prefix+"/ichoruserpasswords/", clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read the stored password: %w", err)
	}
	candidates := candidates(r.load.Ledger.Attempts(load.PasswordKey))
	if len(candidates) == 0 {
		return nil
	}
	if len(got.Kvs) != 1 {
		r.load.Ledger.Fault("%d passwords are stored, want that of %s", len(got.Kvs), load.UserName)
		return nil
	}
	var stored struct {
		Hash string `json:"hash"`
	}
	if err := json.Unmarshal(got.Kvs[0].Value, &stored); err != nil {
		return fmt.Errorf("read the stored password: %w", err)
	}
	for _, a := range candidates {
		fits, err := fits(load.Password(a), stored.Hash)
		if err != nil {
			return err
		}
		if fits {
			return nil
		}
	}
	r.load.Ledger.Fault("the stored password is neither the last one that was acknowledged nor one of %d whose outcome isn't known", len(candidates)-1)
	return nil
}

// candidates are the attempts that may be in force.
func candidates(attempts []*judge.Attempt) []*judge.Attempt {
	var out []*judge.Attempt
	var newest *judge.Attempt
	for _, a := range attempts {
		switch a.Outcome {
		case judge.Acknowledged:
			newest = a
		case judge.Unknown, judge.Pending:
			out = append(out, a)
		}
	}
	if newest != nil {
		out = slices.Insert(out, 0, newest)
	}
	return out
}

// fits holds a password against a hash in the PHC string format.
func fits(password, hash string) (bool, error) {
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[1] != "argon2id" {
		return false, errors.New("the stored hash isn't of argon2id")
	}
	var memory, passes uint32
	var lanes uint8
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &memory, &passes, &lanes); err != nil {
		return false, fmt.Errorf("the stored hash's cost: %w", err)
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil {
		return false, fmt.Errorf("the stored hash's salt: %w", err)
	}
	want, err := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil {
		return false, fmt.Errorf("the stored hash: %w", err)
	}
	got := argon2.IDKey([]byte(password), salt, passes, memory, lanes, uint32(len(want)))
	return subtle.ConstantTimeCompare(got, want) == 1, nil
}
