// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"strings"
	"time"

	"filippo.io/age"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	kubeschema "k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/schedule"
)

const (
	maxNames    = 1000
	maxRequest  = 64
	maxCSR      = 16 << 10
	maxCABundle = 64 << 10
)

// member is one member of a union.
type member struct {
	name string
	set  bool
}

// exactlyOne refuses a union of which no member is set, or several.
func exactlyOne(path *field.Path, members ...member) field.ErrorList {
	var names, set []string
	for _, m := range members {
		names = append(names, m.name)
		if m.set {
			set = append(set, m.name)
		}
	}
	switch len(set) {
	case 1:
		return nil
	case 0:
		return field.ErrorList{field.Required(path, "exactly one of "+strings.Join(names, ", "))}
	}
	var errs field.ErrorList
	for _, name := range set[1:] {
		errs = append(errs, field.Forbidden(path.Child(name), fmt.Sprintf("exactly one of %s is given, and %s is", strings.Join(names, ", "), set[0])))
	}
	return errs
}

// objectName is the rule for names of objects of the kinds without rules of their own.
func objectName(text string, path *field.Path) field.ErrorList {
	return name(text, path, utilvalidation.IsDNS1123Subdomain)
}

// clusterRef judges the name of a cluster; whether there is one, the controller tells.
func clusterRef(ref ichor.ClusterReference, path *field.Path) field.ErrorList {
	return name(ref.Name, path.Child("name"), utilvalidation.IsDNS1123Label)
}

// secretRef judges the name of a Secret in ichor-system.
func secretRef(ref ichor.LocalSecretReference, path *field.Path) field.ErrorList {
	return objectName(ref.Name, path.Child("name"))
}

// machineNames judges a list of names of machines.
func machineNames(names []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(names) > maxNames {
		errs = append(errs, field.TooMany(path, len(names), maxNames))
	}
	seen := map[string]bool{}
	for i, text := range names {
		errs = append(errs, objectName(text, path.Index(i))...)
		if seen[text] {
			errs = append(errs, field.Duplicate(path.Index(i), text))
		}
		seen[text] = true
	}
	return errs
}

// selector judges a label selector.
func selector(labels *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if labels == nil {
		return nil
	}
	return metav1validation.ValidateLabelSelector(labels, metav1validation.LabelSelectorValidationOptions{}, path)
}

// request judges the text by which something is asked for at once.
func request(text string, path *field.Path) field.ErrorList { return tooLong(text, maxRequest, path) }

// lasting refuses a duration outside the range, which includes both ends; nil is fine. A most of zero is no end.
func lasting(duration *metav1.Duration, least, most time.Duration, path *field.Path) field.ErrorList {
	switch {
	case duration == nil:
		return nil
	case most == 0 && duration.Duration < least:
		return field.ErrorList{field.Invalid(path, duration.Duration.String(), "must be at least "+short(least))}
	case most != 0 && (duration.Duration < least || duration.Duration > most):
		return field.ErrorList{field.Invalid(path, duration.Duration.String(), fmt.Sprintf("must be %s to %s", short(least), short(most)))}
	}
	return nil
}

// short writes a duration without the units that are zero: 1h, not 1h0m0s.
func short(duration time.Duration) string {
	text := duration.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// cronFields judges a schedule and its time zone.
func cronFields(fields, zone string, schedulePath, zonePath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, err := schedule.ParseFields(fields); err != nil {
		errs = append(errs, field.Invalid(schedulePath, fields, err.Error()))
	}
	return append(errs, timeZone(zone, zonePath)...)
}

// timeZone judges the name of a time zone.
func timeZone(text string, path *field.Path) field.ErrorList {
	if _, err := schedule.Location(text); err != nil {
		return field.ErrorList{field.Invalid(path, text, err.Error())}
	}
	return nil
}

// groupVersion judges an apiVersion.
func groupVersion(text string, path *field.Path) field.ErrorList {
	parsed, err := kubeschema.ParseGroupVersion(text)
	if err != nil || parsed.Version == "" {
		return field.ErrorList{field.Invalid(path, text, "must be an API group and version, such as apps/v1")}
	}
	return nil
}

// httpsURL judges the URL of a server: no path, no query, and above all no credentials, which everybody who may read
// the object could read. The value is left out of the error then.
func httpsURL(text string, path *field.Path) field.ErrorList {
	parsed, err := url.Parse(text)
	switch {
	case text == "":
		return field.ErrorList{field.Required(path, "the server's URL, such as https://s3.example.org:9000")}
	case err != nil:
		return field.ErrorList{field.Invalid(path, "", "must be a URL such as https://s3.example.org:9000")}
	case parsed.User != nil:
		return field.ErrorList{field.Forbidden(path, "holds credentials, which everybody who may read this object could read; they belong into the Secret")}
	case parsed.Scheme != "https":
		return field.ErrorList{field.Invalid(path, text, "must begin with https://: what is sent there is worth protecting")}
	case parsed.Hostname() == "" || parsed.Opaque != "":
		return field.ErrorList{field.Invalid(path, text, "must name a host, as in https://s3.example.org:9000")}
	case parsed.Path != "" && parsed.Path != "/" || parsed.RawQuery != "" || parsed.Fragment != "":
		return field.ErrorList{field.Invalid(path, text, "must be a scheme, a host and a port, without path or query")}
	}
	return nil
}

// certificates judges certificates in PEM; none is fine.
func certificates(bundle string, path *field.Path) field.ErrorList {
	if bundle == "" {
		return nil
	}
	if len(bundle) > maxCABundle {
		return field.ErrorList{field.TooLong(path, "", maxCABundle)}
	}
	if errs := NoPrivateKey([]byte(bundle), path); len(errs) > 0 {
		return errs
	}
	rest, found := []byte(bundle), 0
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return field.ErrorList{field.Invalid(path, block.Type, "must hold certificates in PEM and nothing else")}
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return field.ErrorList{field.Invalid(path, "", fmt.Sprintf("certificate %d: %v", found+1, err))}
		}
		found++
	}
	if found == 0 || len(strings.TrimSpace(string(rest))) > 0 {
		return field.ErrorList{field.Invalid(path, "", "must hold certificates in PEM and nothing else")}
	}
	return nil
}

// ageRecipients judges public keys. A private key by mistake is never repeated in the error.
func ageRecipients(recipients []string, path *field.Path) field.ErrorList {
	const most = 16
	var errs field.ErrorList
	switch {
	case len(recipients) == 0:
		return field.ErrorList{field.Required(path, "at least one age public key, such as age-keygen prints")}
	case len(recipients) > most:
		errs = append(errs, field.TooMany(path, len(recipients), most))
	}
	seen, quantum := map[string]bool{}, 0
	for i, recipient := range recipients {
		if strings.Contains(strings.ToUpper(recipient), "AGE-SECRET-KEY-") {
			errs = append(errs, field.Forbidden(path.Index(i), "holds a private key, which everybody who may read this object could read; give the public one, which begins with age1, and make new keys"))
			continue
		}
		parsed, err := age.ParseRecipients(strings.NewReader(recipient))
		if err != nil || len(parsed) != 1 || strings.TrimSpace(recipient) != recipient {
			errs = append(errs, field.Invalid(path.Index(i), recipient, "must be an age public key, which begins with age1"))
			continue
		}
		if seen[recipient] {
			errs = append(errs, field.Duplicate(path.Index(i), recipient))
		}
		seen[recipient] = true
		if _, ok := parsed[0].(*age.HybridRecipient); ok {
			quantum++
		}
	}
	if quantum > 0 && quantum < len(seen) {
		errs = append(errs, field.Invalid(path, "", "must be all post-quantum keys (age1pq1…) or none: age refuses to mix them, because the others would weaken them"))
	}
	return errs
}

// certificateRequest judges a certificate signing request: PKCS #10 in PEM, signed with a key that is good enough.
func certificateRequest(text []byte, path *field.Path) field.ErrorList {
	const what = "must be a certificate signing request in PEM (BEGIN CERTIFICATE REQUEST)"
	switch {
	case len(text) == 0:
		return field.ErrorList{field.Required(path, "a certificate signing request in PEM")}
	case len(text) > maxCSR:
		return field.ErrorList{field.TooLong(path, "", maxCSR)}
	}
	if errs := NoPrivateKey(text, path); len(errs) > 0 {
		return errs
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return field.ErrorList{field.Invalid(path, "", what)}
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return field.ErrorList{field.Invalid(path, "", what+": "+err.Error())}
	}
	if weak := weakKey(csr.PublicKey); weak != "" {
		return field.ErrorList{field.Invalid(path, "", weak)}
	}
	if err := csr.CheckSignature(); err != nil {
		return field.ErrorList{field.Invalid(path, "", "isn't signed with the key that it is for: "+err.Error())}
	}
	return nil
}

// weakKey says what is wrong with a key.
func weakKey(key any) string {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return ""
	case *ecdsa.PublicKey:
		if bits := key.Curve.Params().BitSize; bits < 256 {
			return fmt.Sprintf("has an ECDSA key of %d bits; at least 256 are needed", bits)
		}
		return ""
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < 2048 || bits > 8192 {
			return fmt.Sprintf("has an RSA key of %d bits; 2048 to 8192 are allowed", bits)
		}
		return ""
	}
	return "has a key of a kind that isn't supported; use Ed25519, ECDSA or RSA"
}

// conditions judges the conditions of a status.
func conditions(list []metav1.Condition, path *field.Path) field.ErrorList {
	return metav1validation.ValidateConditions(list, path.Child("conditions"))
}
