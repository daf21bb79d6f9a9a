//! What a limit counts separately.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;

use http::HeaderName;
use http::request::Parts;

/// The key of a limit: reads it from the head of a request. [`ClientIp`](crate::ClientIp), [`header`] and [`extension`] are keys.
///
/// A tuple of keys is one key of several parts, and needs all of them. [`or`](Self::or) takes the first that the request has.
pub trait Key: Send + Sync + 'static {
    /// Writes the key of a request. Returns false if the request has none; what was written then does not count.
    fn write(&self, request: &Parts, to: &mut KeyHasher) -> bool;

    /// Checks the key when a layer is built.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// This key, or for requests that do not have it, the other one.
    fn or<K: Key>(self, other: K) -> Or<Self, K>
    where
        Self: Sized,
    {
        Or(self, other)
    }
}

/// Hashes a key with a secret of the layer, so that no client can make two keys collide.
#[derive(Clone)]
pub struct KeyHasher(pub(crate) DefaultHasher);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}

/// See [`Key::or`].
#[derive(Clone, Debug)]
pub struct Or<A, B>(A, B);

impl<A: Key, B: Key> Key for Or<A, B> {
    fn write(&self, request: &Parts, to: &mut KeyHasher) -> bool {
        let before = to.clone();
        if self.0.write(request, to) {
            return true;
        }
        *to = before;
        self.1.write(request, to)
    }

    fn check(&self) -> Result<(), String> {
        self.0.check()?;
        self.1.check()
    }
}

macro_rules! tuple {
    ($($part:ident),+) => {
        impl<$($part: Key),+> Key for ($($part,)+) {
            #[allow(non_snake_case, reason = "the parts are named after their types")]
            fn write(&self, request: &Parts, to: &mut KeyHasher) -> bool {
                let ($($part,)+) = self;
                $($part.write(request, to))&&+
            }

            #[allow(non_snake_case, reason = "the parts are named after their types")]
            fn check(&self) -> Result<(), String> {
                let ($($part,)+) = self;
                $($part.check()?;)+
                Ok(())
            }
        }
    };
}

tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);

/// All requests of a limit without a key have this one.
pub(crate) struct Everyone;

impl Key for Everyone {
    fn write(&self, _request: &Parts, _to: &mut KeyHasher) -> bool {
        true
    }
}

/// See [`header`].
#[derive(Clone, Debug)]
pub struct Header(Result<HeaderName, String>);

/// The value of a header. For [`Handle::usage`](crate::Handle::usage) it is a `str`, or a `[u8]` if it is not text.
///
/// A client chooses its headers: unless something in front of the layer verifies the value, add a limit by address.
pub fn header(name: &str) -> Header {
    Header(name.parse().map_err(|_| format!("{name:?} is not a name of a header")))
}

impl Key for Header {
    fn write(&self, request: &Parts, to: &mut KeyHasher) -> bool {
        let value = self.0.as_ref().ok().and_then(|name| request.headers.get(name));
        let Some(value) = value else { return false };
        match std::str::from_utf8(value.as_bytes()) {
            Ok(text) => text.hash(to),
            Err(_) => value.as_bytes().hash(to),
        }
        true
    }

    fn check(&self) -> Result<(), String> {
        self.0.as_ref().map(|_| ()).map_err(Clone::clone)
    }
}

/// See [`extension`].
pub struct Extension<T>(PhantomData<fn() -> T>);

/// An extension of the request, which a layer in front of this one has inserted: the user of a verified token, for example.
pub fn extension<T: Hash + Send + Sync + 'static>() -> Extension<T> {
    Extension(PhantomData)
}

impl<T: Hash + Send + Sync + 'static> Key for Extension<T> {
    fn write(&self, request: &Parts, to: &mut KeyHasher) -> bool {
        request.extensions.get::<T>().map(|value| value.hash(to)).is_some()
    }
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", std::any::type_name::<T>())
    }
}

/// A key that a closure returns.
pub(crate) struct By<F, K>(F, PhantomData<fn() -> K>);

impl<F, K> By<F, K> {
    pub(crate) fn new(key: F) -> Self {
        Self(key, PhantomData)
    }
}

impl<F, K> Key for By<F, K>
where
    F: Fn(&Parts) -> Option<K> + Send + Sync + 'static,
    K: Hash + 'static,
{
    fn write(&self, request: &Parts, to: &mut KeyHasher) -> bool {
        (self.0)(request).map(|key| key.hash(to)).is_some()
    }
}
