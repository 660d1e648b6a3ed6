// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"encoding/base64"
	"errors"
	"fmt"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
)

// maxTalosconfig bounds a talosconfig in bytes; one with a hundred contexts is smaller.
const maxTalosconfig = 1 << 20

// ParseTalosconfig reads the credentials of the current context of a talosconfig. An error quotes nothing of the text, and
// there are no credentials without a certificate authority: a machine is never trusted unverified.
func ParseTalosconfig(text []byte) (Credentials, error) {
	if len(text) > maxTalosconfig {
		return Credentials{}, fmt.Errorf("it has %d bytes, and at most %d are read", len(text), maxTalosconfig)
	}
	parsed, err := clientconfig.FromBytes(text)
	if err != nil {
		return Credentials{}, errors.New("it is no YAML of the form that talosctl writes") // the decoder quotes the text
	}
	current := parsed.Contexts[parsed.Context]
	switch {
	case current == nil:
		return Credentials{}, errors.New("it has no current context; choose one with `talosctl config context`")
	case current.CA == "" || current.Crt == "" || current.Key == "":
		return Credentials{}, errors.New("its current context lacks the certificate authority, the client certificate or the key")
	}
	var credentials Credentials
	for _, part := range []struct {
		into *[]byte
		text string
	}{{&credentials.CA, current.CA}, {&credentials.Certificate, current.Crt}, {&credentials.Key, current.Key}} {
		decoded, err := base64.StdEncoding.DecodeString(part.text)
		if err != nil {
			return Credentials{}, errors.New("what its current context holds isn't base64")
		}
		*part.into = decoded
	}
	return credentials, nil
}
