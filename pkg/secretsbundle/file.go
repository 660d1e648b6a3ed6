// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"filippo.io/age"
	"filippo.io/age/armor"
)

// ErrLocked is an encrypted bundle that none of the given keys opens.
var ErrLocked = errors.New("secrets bundle is encrypted")

const (
	// ageHeader starts a file of age's, armor.Header one in letters. Source: https://age-encryption.org/v1
	ageHeader = "age-encryption.org/"
	// ageOverhead is how much longer an encrypted bundle may be: its header, a tag per 64 KiB, and a third for armor.
	ageOverhead = maxBundleSize
	// maxIdentities is the size of the largest file of identities that is read.
	maxIdentities = 1 << 20
)

// Keys open an encrypted bundle.
type Keys struct {
	// Identities is the text of an age identity file; empty if there is none.
	Identities []byte
	// Passphrase is called when the bundle was encrypted with one, at most once. Nil: nobody can be asked.
	Passphrase func() (string, error)
}

// File is a bundle that was read from a file.
type File struct {
	*Bundle
	Encrypted bool
	// Exposed tells that others than the file's owner may read it, though it isn't encrypted.
	Exposed bool
}

// ReadFile reads a bundle from a file: as "talosctl gen secrets" writes it, or that encrypted with age.
func ReadFile(path string, keys Keys) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the secrets bundle: %w", err)
	}
	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the secrets bundle: %w", err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("read the secrets bundle: %s is a folder", path)
	}
	bundle, encrypted, err := Read(file, keys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	exposed := !encrypted && info.Mode().IsRegular() && info.Mode().Perm()&(fs.ModePerm^0o700) != 0
	return &File{Bundle: bundle, Encrypted: encrypted, Exposed: exposed}, nil
}

// Read reads a bundle, and tells whether it was encrypted. No error quotes what was read.
func Read(from io.Reader, keys Keys) (*Bundle, bool, error) {
	limit := int64(maxBundleSize + ageOverhead)
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("read the secrets bundle: %w", err)
	case int64(len(text)) > limit:
		return nil, false, fmt.Errorf("secrets bundle is longer than %d bytes", limit)
	case len(bytes.TrimSpace(text)) == 0:
		return nil, false, errors.New("secrets bundle is empty")
	}
	encrypted, armored := isAge(text)
	if encrypted {
		if text, err = decrypt(text, armored, keys); err != nil {
			return nil, true, err
		}
	}
	bundle, err := Parse(text)
	return bundle, encrypted, err
}

func isAge(text []byte) (encrypted, armored bool) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte(armor.Header)) {
		return true, true
	}
	return bytes.HasPrefix(text, []byte(ageHeader)), false
}

func decrypt(text []byte, armored bool, keys Keys) ([]byte, error) {
	identities := []age.Identity{&passphrase{ask: keys.Passphrase}}
	if len(keys.Identities) > maxIdentities {
		return nil, fmt.Errorf("age identities are longer than %d bytes", maxIdentities)
	}
	if len(keys.Identities) > 0 {
		parsed, err := age.ParseIdentities(bytes.NewReader(keys.Identities))
		if err != nil {
			return nil, errors.New("the identity file is none of age's") // the cause may quote a key
		}
		identities = append(identities, parsed...)
	}
	var source io.Reader = bytes.NewReader(text)
	if armored {
		source = armor.NewReader(bufio.NewReader(source))
	}
	plain, err := age.Decrypt(source, identities...)
	var none *age.NoIdentityMatchError
	var asked *passphraseError
	switch {
	case errors.As(err, &asked):
		return nil, asked
	case errors.As(err, &none) && len(keys.Identities) == 0:
		return nil, fmt.Errorf("%w: it takes an age identity to open it", ErrLocked)
	case errors.As(err, &none):
		return nil, fmt.Errorf("%w: the given age identity isn't one of those it was encrypted for", ErrLocked)
	case err != nil:
		// age's own words quote what they found, which may be a bundle that somebody took for an encrypted one.
		return nil, errors.New("decrypt the secrets bundle: it is no age file, or a damaged one")
	}
	out, err := io.ReadAll(io.LimitReader(plain, maxBundleSize+1))
	if err != nil {
		return nil, fmt.Errorf("decrypt the secrets bundle: it is damaged: %w", err)
	}
	return out, nil
}

// passphrase is an age identity that asks for its passphrase only when the file takes one.
type passphrase struct {
	ask func() (string, error)
}

// passphraseError ends the decryption: age would hide it behind "no identity matched".
type passphraseError struct{ err error }

func (e *passphraseError) Error() string { return e.err.Error() }
func (e *passphraseError) Unwrap() error { return e.err }

// Unwrap implements age.Identity.
func (p *passphrase) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	if len(stanzas) != 1 || stanzas[0].Type != "scrypt" {
		return nil, age.ErrIncorrectIdentity
	}
	if p.ask == nil {
		return nil, &passphraseError{fmt.Errorf("%w: it takes its passphrase to open it", ErrLocked)}
	}
	text, err := p.ask()
	if err != nil {
		return nil, &passphraseError{err}
	}
	identity, err := age.NewScryptIdentity(text)
	if err != nil {
		return nil, &passphraseError{fmt.Errorf("%w: no passphrase was given", ErrLocked)}
	}
	key, err := identity.Unwrap(stanzas)
	if errors.Is(err, age.ErrIncorrectIdentity) {
		return nil, &passphraseError{fmt.Errorf("%w: the passphrase is wrong", ErrLocked)}
	}
	return key, err
}
