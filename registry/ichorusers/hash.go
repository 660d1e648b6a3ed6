// SPDX-License-Identifier: Apache-2.0

package ichorusers

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
)

// cost is what one hash costs. Source: RFC 9106, section 4, the second recommended option, for servers that can't spare
// 2 GiB for each.
type cost struct {
	// memory in KiB, passes over it, and lanes.
	memory, passes uint32
	lanes          uint8
}

var standardCost = cost{memory: 64 << 10, passes: 3, lanes: 4}

const (
	saltLength = 16
	hashLength = 32
)

// atOnce bounds the memory that hashing takes: more wait.
var atOnce = make(chan struct{}, 2)

// errNoHash says that what is stored isn't a hash of ours.
var errNoHash = errors.New("the stored password is of an unknown form")

// hashPassword returns the hash of a password with a new salt, in the PHC string format.
func hashPassword(ctx context.Context, password string, c cost) (string, error) {
	salt := make([]byte, saltLength)
	if _, err := rand.Read(salt); err != nil {
		return "", fmt.Errorf("make a salt: %w", err)
	}
	hash, err := derive(ctx, password, salt, c)
	if err != nil {
		return "", err
	}
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, c.memory, c.passes, c.lanes, encode(salt), encode(hash)), nil
}

// verifyPassword tells whether the password is the one that was hashed.
func verifyPassword(ctx context.Context, password, stored string) (bool, error) {
	parts := strings.Split(stored, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return false, errNoHash
	}
	var c cost
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &c.memory, &c.passes, &c.lanes); err != nil || !c.bounded() {
		return false, errNoHash
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil {
		return false, errNoHash
	}
	want, err := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil || len(want) != hashLength {
		return false, errNoHash
	}
	got, err := derive(ctx, password, salt, c)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(got, want) == 1, nil
}

// bounded refuses a cost that would stop the server.
func (c cost) bounded() bool {
	return c.memory >= 8 && c.memory <= 1<<20 && c.passes >= 1 && c.passes <= 64 && c.lanes >= 1
}

func derive(ctx context.Context, password string, salt []byte, c cost) ([]byte, error) {
	select {
	case atOnce <- struct{}{}:
		defer func() { <-atOnce }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return argon2.IDKey([]byte(password), salt, c.passes, c.memory, c.lanes, hashLength), nil
}
