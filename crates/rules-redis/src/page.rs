//! Pages of rules in the order of their ids. Each limit has its own order in Redis; they are merged here.

use redis::Cmd;
use sluicegate_rules::Stored;

use crate::entry;
use crate::error::ReadError;
use crate::read::{ReadRule, Store, read};
use crate::script::PAGE;

/// So many ids are asked for at once.
const MOST_IDS: usize = 2_000;

/// For each limit whether it may have more ids, and the next ones.
type Ids = Vec<(bool, Vec<String>)>;

impl Store {
    pub(crate) async fn page(
        &self,
        limit: Option<&str>,
        key: Option<&str>,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<ReadRule>, ReadError> {
        let limits = match limit {
            Some(limit) => vec![limit.to_owned()],
            None => self.limits().await?,
        };
        let (mut page, mut after, mut more) =
            (Vec::new(), after.unwrap_or("").to_owned(), !limits.is_empty());
        while more && page.len() < most {
            let wanted = (most - page.len()).min(MOST_IDS);
            let ids;
            (ids, more) = merged(self.ids(&limits, key, &after, wanted).await?, wanted);
            let Some(last) = ids.last() else { break };
            last.clone_into(&mut after);
            let wanted = |read: &ReadRule| {
                let fits = |stored: &Stored| {
                    limits.contains(&stored.rule.limit) && key.is_none_or(|key| stored.rule.key == key)
                };
                read.as_ref().map_or(true, fits)
            };
            page.extend(self.rules(&ids).await?.into_iter().filter(wanted));
        }
        Ok(page)
    }

    async fn ids(
        &self,
        limits: &[String],
        key: Option<&str>,
        after: &str,
        most: usize,
    ) -> Result<Ids, ReadError> {
        let (index, key) = match key {
            Some(key) => (&self.names.keys, format!("={key}")),
            None => (&self.names.ids, String::new()),
        };
        let arguments = |call: &mut Cmd| _ = call.arg(most).arg(after).arg(&key).arg(limits);
        self.ask(&PAGE, &[index], arguments, self.long_timeout()).await
    }

    /// The rules with these ids that exist, each as far as it can be read.
    async fn rules(&self, ids: &[String]) -> Result<Vec<ReadRule>, ReadError> {
        let mut get = redis::cmd("HMGET");
        get.arg(&self.names.rules).arg(ids);
        let entries: Vec<Option<Vec<u8>>> = read(self.line.command(&get, self.long_timeout()).await?)?;
        let both = ids.iter().zip(entries).filter_map(|(id, entry)| Some((id, entry?)));
        Ok(both.map(|(id, entry)| Ok(entry::stored(id, &entry)?.0)).collect())
    }
}

/// The first `most` ids of all limits, and whether there may be more. Of a limit that may have more only what it has named
/// is known, so nothing behind that is taken.
fn merged(found: Ids, most: usize) -> (Vec<String>, bool) {
    let named = found.iter().filter(|(more, _)| *more);
    let known = named.filter_map(|(_, ids)| ids.last()).min().cloned();
    let mut ids: Vec<String> = found.into_iter().flat_map(|(_, ids)| ids).collect();
    ids.sort_unstable();
    ids.dedup();
    let all = ids.len();
    ids.retain(|id| known.as_ref().is_none_or(|known| id <= known));
    ids.truncate(most);
    let more = known.is_some() || ids.len() < all;
    (ids, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn nothing_behind_what_is_known_of_every_limit_is_taken() {
        let found = || vec![(true, ids("a c")), (false, ids("b d e")), (false, Vec::new())];
        assert_eq!(merged(found(), 9), (ids("a b c"), true));
        assert_eq!(merged(found(), 2), (ids("a b"), true));
        assert_eq!(merged(vec![(false, ids("b")), (false, ids("a b c"))], 3), (ids("a b c"), false));
        assert_eq!(merged(vec![(false, ids("b")), (false, ids("a c"))], 2), (ids("a b"), true));
        assert_eq!(merged(Vec::new(), 2), (Vec::new(), false));
    }
}
